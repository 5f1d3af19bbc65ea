"""What is remembered of launches: whole, on disk, and no more than a help."""

from pathlib import Path
from threading import Thread

import pytest

from hexcloud.adapters.provisioners.sky_records import SETUP, SkyRecord, SkyRecords
from hexcloud.domain.fleet import NodeId


@pytest.fixture
def records(tmp_path: Path) -> SkyRecords:
    return SkyRecords(tmp_path / "sky")


def record(cluster: str, *nodes: str) -> SkyRecord:
    ids = tuple(NodeId(node) for node in nodes)
    return SkyRecord(cluster=cluster, node_ids=ids, offer_id="x", cloud="aws", region="us-east-1")


def test_what_is_saved_is_read_back_by_another_process(records: SkyRecords, tmp_path: Path) -> None:
    assert records.all() == () and records.read("hx-a") is None
    records.save(record("hx-a", "run.a.1"))
    records.save(record("hx-b", "run.b.1", "run.b.2"))
    again = SkyRecords(tmp_path / "sky")
    assert [one.cluster for one in again.all()] == ["hx-a", "hx-b"]
    found = again.of(NodeId("run.b.2"))
    assert found is not None and found.cluster == "hx-b"
    assert again.of(NodeId("run.c.1")) is None


def test_a_change_keeps_what_somebody_else_changed(records: SkyRecords) -> None:
    records.save(record("hx-a", "run.a.1"))
    one = Thread(target=lambda: [records.change("hx-a", phase=SETUP) for _ in range(20)])
    two = Thread(target=lambda: [records.change("hx-a", is_ending=True) for _ in range(20)])
    for thread in (one, two):
        thread.start()
    for thread in (one, two):
        thread.join()
    found = records.read("hx-a")
    assert found is not None and found.phase == SETUP and found.is_ending
    with pytest.raises(KeyError):
        records.change("hx-z", is_ending=True)


def test_a_broken_record_is_as_good_as_lost(records: SkyRecords, tmp_path: Path) -> None:
    records.save(record("hx-a", "run.a.1"))
    (tmp_path / "sky" / "hx-b.json").write_text('{"cluster": "hx-b"')
    assert records.read("hx-b") is None
    assert [one.cluster for one in records.all()] == ["hx-a"]
