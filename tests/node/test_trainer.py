from pathlib import Path

from hexcloud.node.trainer import start_of
from hexcloud.runtime.checkpoint_index import checkpoint_path, write_manifest
from hexcloud.runtime.coordinator import Start


def write_checkpoint(run_dir: Path, epoch: int, version: int) -> Path:
    path = checkpoint_path(run_dir, epoch, version)
    path.mkdir(parents=True)
    (path / "state").write_bytes(b"weights")
    write_manifest(path)
    return path


def test_a_new_run_starts_at_the_beginning(tmp_path: Path) -> None:
    assert start_of(tmp_path) == Start(epoch=0, version=0)


def test_a_run_goes_on_at_its_newest_checkpoint_in_a_new_epoch(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 0, 40)
    write_checkpoint(tmp_path, 1, 20)
    assert start_of(tmp_path) == Start(epoch=2, version=20)


def test_a_torn_checkpoint_is_passed_over(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 0, 20)
    (write_checkpoint(tmp_path, 0, 40) / "state").write_bytes(b"torn")
    assert start_of(tmp_path) == Start(epoch=1, version=20)


def test_the_epoch_of_a_torn_checkpoint_is_not_taken_again(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1, 60)
    (write_checkpoint(tmp_path, 2, 60) / "state").write_bytes(b"torn")
    assert start_of(tmp_path) == Start(epoch=3, version=60)


def test_a_run_whose_checkpoints_are_all_torn_begins_anew_in_a_new_epoch(tmp_path: Path) -> None:
    (write_checkpoint(tmp_path, 0, 20) / "state").write_bytes(b"torn")
    assert start_of(tmp_path) == Start(epoch=1, version=0)
