import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from hexcloud.adapters.stored_folder import download_folder, find_marker
from hexcloud.domain.errors import StoreError
from hexcloud.domain.fleet import NodeId, RunId
from hexcloud.domain.pointer import sign_pointer
from hexcloud.domain.stored import head_object, metrics_object, whole_checkpoints
from hexcloud.node.mirror import Belongings, Mirror, SupersededError
from hexcloud.node.restore import restore
from tests.node.switched_bucket import SwitchedBucket
from tests.node.test_restore import made

SECRET = "run-secret"
POINTER = sign_pointer(RunId("run"), "https://1.2.3.4:8477", 0, SECRET)


class Head:
    """A head's folder, its mirror, and a clock that the test moves."""

    def __init__(self, tmp_path: Path) -> None:
        self.bucket = SwitchedBucket(tmp_path / "store")
        self.run_dir, self.output = tmp_path / "run", tmp_path / "output"
        claim = restore(self.bucket, self.run_dir, SECRET, NodeId("run.trainer-0.1"))
        self.now_s = 0.0
        self.has = Belongings(self.run_dir, self.output, SECRET, claim)
        self.mirror = Mirror(self.bucket, self.has, lambda: self.now_s)

    def checkpoints(self) -> list[str]:
        return [name.folder for name in whole_checkpoints(self.bucket.list("checkpoints"))]


@pytest.fixture
def head(tmp_path: Path) -> Head:
    return Head(tmp_path)


def test_the_pointer_is_stored_once_there_is_one(head: Head) -> None:
    head.mirror.bring_up(at_once=False)
    assert head.bucket.get("coordinator.json") is None
    head.mirror.point(POINTER)
    head.mirror.bring_up(at_once=False)
    assert head.bucket.get("coordinator.json") == POINTER.model_dump_json().encode()


def test_each_new_checkpoint_is_stored_and_two_are_kept(head: Head, tmp_path: Path) -> None:
    for version in (0, 20, 40):
        made(head.run_dir, 0, version)
        head.mirror.bring_up(at_once=False)
        assert head.mirror.stored_version == version
    assert head.checkpoints() == ["checkpoints/0-40", "checkpoints/0-20"]
    assert not [name for name in head.bucket.list("checkpoints") if "0-0" in name]
    download_folder(head.bucket, "checkpoints/0-40", tmp_path / "back", SECRET)
    assert (tmp_path / "back" / "state").read_bytes() == b"0 40"


def test_a_torn_checkpoint_is_not_stored(head: Head) -> None:
    (made(head.run_dir, 0, 20) / "state").write_bytes(b"torn")
    head.mirror.bring_up(at_once=False)
    assert head.bucket.list("checkpoints") == ()


@pytest.mark.parametrize("writes", range(4))
def test_a_head_killed_anywhere_leaves_the_checkpoint_before(head: Head, writes: int) -> None:
    made(head.run_dir, 0, 20)
    head.mirror.bring_up(at_once=False)
    made(head.run_dir, 0, 40)
    head.bucket.writes_left = writes
    try:
        head.mirror.bring_up(at_once=False)
    except StoreError:
        assert head.checkpoints() == ["checkpoints/0-20"]
    else:
        assert head.checkpoints()[0] == "checkpoints/0-40"


def test_the_trainers_pruning_does_not_pull_files_from_under_an_upload(head: Head) -> None:
    path = made(head.run_dir, 0, 20)

    class Slow(SwitchedBucket):
        def upload(self, name: str, file: str) -> None:
            shutil.rmtree(path, ignore_errors=True)
            super().upload(name, file)

    mirror = Mirror(Slow(head.run_dir.parent / "store"), head.has)
    mirror.bring_up(at_once=False)
    assert head.checkpoints() == ["checkpoints/0-20"]


def test_a_failed_turn_is_made_up_for(head: Head) -> None:
    made(head.run_dir, 0, 20)
    head.mirror.point(POINTER)
    head.bucket.is_away = True
    with pytest.raises(StoreError):
        head.mirror.bring_up(at_once=False)
    assert head.mirror.stored_version == -1
    head.bucket.is_away = False
    head.mirror.bring_up(at_once=False)
    assert head.checkpoints() == ["checkpoints/0-20"]
    assert head.bucket.get("coordinator.json") is not None


def test_whole_rows_of_metrics_are_stored_now_and_then(head: Head) -> None:
    file = head.run_dir / "metrics.jsonl"
    file.write_text('{"version": 1}\n{"ver')
    head.mirror.bring_up(at_once=False)
    assert head.bucket.get(metrics_object(0)) == b'{"version": 1}\n'
    file.write_text('{"version": 1}\n{"version": 2}\n')
    head.mirror.bring_up(at_once=False)
    assert head.bucket.get(metrics_object(0)) == b'{"version": 1}\n'
    head.now_s += 6.0
    head.mirror.bring_up(at_once=False)
    assert head.bucket.get(metrics_object(0)) == b'{"version": 1}\n{"version": 2}\n'


@pytest.mark.parametrize("writes", range(5))
def test_no_checkpoint_is_stored_whose_steps_have_no_rows(head: Head, writes: int) -> None:
    (head.run_dir / "metrics.jsonl").write_text('{"version": 1}\n')
    head.mirror.bring_up(at_once=False)
    (head.run_dir / "metrics.jsonl").write_text('{"version": 1}\n{"version": 2}\n')
    made(head.run_dir, 0, 2)
    head.bucket.writes_left = writes
    with suppress(StoreError):
        head.mirror.bring_up(at_once=False)
    rows = head.bucket.get(metrics_object(0)) or b""
    assert not head.checkpoints() or rows.count(b"\n") == 2
    assert bool(head.checkpoints()) is (writes == 4)


def test_the_result_is_stored_last_and_only_when_the_trainer_has_written_it(head: Head) -> None:
    head.output.mkdir()
    (head.output / "model.safetensors").write_bytes(b"weights")
    made(head.run_dir, 0, 20)
    head.mirror.bring_up(at_once=False)
    assert not head.mirror.is_delivered and head.bucket.list("output") == ()
    head.mirror.is_over = True
    head.bucket.writes_left = 1
    with pytest.raises(StoreError):
        head.mirror.bring_up(at_once=False)
    assert not head.mirror.is_delivered and find_marker(head.bucket, "output", SECRET) is None
    head.bucket.writes_left = None
    head.mirror.bring_up(at_once=False)
    assert head.mirror.is_delivered and find_marker(head.bucket, "output", SECRET) is not None


@pytest.mark.parametrize("what", ["pointer", "checkpoint", "output"])
def test_a_head_that_lost_the_run_stores_nothing_any_more(head: Head, what: str) -> None:
    head.bucket.put(head_object(4), b"run.trainer-0.2")
    if what == "pointer":
        head.mirror.point(POINTER)
    elif what == "checkpoint":
        made(head.run_dir, 0, 20)
    else:
        head.output.mkdir()
        head.mirror.is_over = True
    before = [name for prefix in ("", "checkpoints", "output") for name in head.bucket.list(prefix)]
    with pytest.raises(SupersededError):
        head.mirror.bring_up(at_once=False)
    assert [name for prefix in ("", "checkpoints", "output") for name in head.bucket.list(prefix)] == before
