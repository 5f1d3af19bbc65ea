from pathlib import Path

import pytest

from hexcloud.adapters.provisioners.node_dir import Intent, NodeDir, write_whole
from hexcloud.domain.errors import UnknownProvisionError
from hexcloud.domain.fleet import NodeId, RunId
from hexcloud.domain.offer import OfferId

INTENT = Intent(node_id=NodeId("a"), run_id=RunId("r"), offer_id=OfferId("o"), asked_wall_s=5.0)


def test_a_directory_that_is_not_there_remembers_nothing(tmp_path: Path) -> None:
    node = NodeDir(tmp_path / "a")
    assert node.intent() is None
    assert node.pid() is None
    assert not node.has_record()
    assert node.stopping_since_wall_s() is None


def test_the_intent_is_written_after_the_files(tmp_path: Path) -> None:
    node = NodeDir(tmp_path / "a")
    with pytest.raises(UnknownProvisionError):
        node.prepare(INTENT, {"node.json": "{}", "../other": ""})
    assert node.intent() is None
    node.prepare(INTENT, {"node.json": "{}"})
    assert node.intent() == INTENT
    assert (node.path / "node.json").read_text() == "{}"


def test_a_directory_is_closed_once_and_has_no_pid_then(tmp_path: Path) -> None:
    node = NodeDir(tmp_path / "a")
    node.prepare(INTENT, {})
    assert node.close()
    assert not node.close()
    assert node.has_record()
    assert node.pid() is None


def test_the_mark_of_stopping_keeps_its_time(tmp_path: Path) -> None:
    node = NodeDir(tmp_path)
    node.mark_stopping(12.5)
    assert node.stopping_since_wall_s() == 12.5


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    write_whole(tmp_path / "x", "one")
    write_whole(tmp_path / "x", "two")
    assert [file.name for file in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_text() == "two"
