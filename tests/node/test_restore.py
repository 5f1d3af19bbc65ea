from pathlib import Path

import pytest

from hexcloud.adapters.stored_folder import upload_folder
from hexcloud.domain.errors import StoreError
from hexcloud.domain.fleet import NodeId
from hexcloud.node.restore import Claim, restore
from hexcloud.node.trainer import start_of
from hexcloud.runtime.checkpoint_index import checkpoint_path, newest_checkpoint, write_manifest
from hexcloud.runtime.coordinator_start import Start
from tests.node.switched_bucket import SwitchedBucket

SECRET, HEAD = "run-secret", NodeId("run.trainer-0.1")


@pytest.fixture
def bucket(tmp_path: Path) -> SwitchedBucket:
    return SwitchedBucket(tmp_path / "store")


def made(run_dir: Path, epoch: int, version: int) -> Path:
    path = checkpoint_path(run_dir, epoch, version)
    path.mkdir(parents=True)
    (path / "state").write_bytes(f"{epoch} {version}".encode())
    write_manifest(path)
    return path


def stored(bucket: SwitchedBucket, tmp_path: Path, epoch: int, version: int, secret: str = SECRET) -> None:
    upload_folder(bucket, f"checkpoints/{epoch}-{version}", made(tmp_path / "old", epoch, version), secret)


def test_a_run_that_nobody_had_begins(bucket: SwitchedBucket, tmp_path: Path) -> None:
    assert restore(bucket, tmp_path / "run", SECRET, HEAD) == Claim(epoch=0, version=-1)
    assert start_of(tmp_path / "run") == Start(epoch=0, version=0)


def test_a_new_machine_goes_on_at_the_newest_whole_checkpoint(bucket: SwitchedBucket, tmp_path: Path) -> None:
    stored(bucket, tmp_path, 0, 40)
    stored(bucket, tmp_path, 1, 20)
    assert restore(bucket, tmp_path / "run", SECRET, HEAD) == Claim(epoch=2, version=20)
    assert start_of(tmp_path / "run") == Start(epoch=2, version=20)


@pytest.mark.parametrize("harm", ["torn", "damaged", "lost", "forged"])
def test_a_checkpoint_that_is_not_whole_is_passed_over(bucket: SwitchedBucket, tmp_path: Path, harm: str) -> None:
    stored(bucket, tmp_path, 0, 20)
    stored(bucket, tmp_path, 0, 40, secret="guess" if harm == "forged" else SECRET)
    if harm == "torn":
        bucket.delete(("checkpoints/0-40.json",))
    elif harm == "damaged":
        bucket.put("checkpoints/0-40/state", b"pickle of somebody")
    elif harm == "lost":
        bucket.delete(("checkpoints/0-40/state",))
    assert restore(bucket, tmp_path / "run", SECRET, HEAD) == Claim(epoch=1, version=20)
    found = newest_checkpoint(tmp_path / "run")
    assert found is not None and (found.path / "state").read_bytes() == b"0 20"
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir() if not path.name.startswith(".")] == ["0-20"]


def test_an_epoch_is_never_taken_twice_though_nothing_else_was_stored(bucket: SwitchedBucket, tmp_path: Path) -> None:
    first = restore(bucket, tmp_path / "a", SECRET, HEAD)
    second = restore(bucket, tmp_path / "b", SECRET, HEAD)
    third = restore(bucket, tmp_path / "c", SECRET, HEAD)
    # The first head may have restarted its trainer three times, each time in an epoch of its own.
    assert first.epoch == 0 and second.epoch >= 4 and third.epoch >= second.epoch + 4
    assert start_of(tmp_path / "c") == Start(epoch=third.epoch, version=0)


class LateBucket(SwitchedBucket):
    """Another head claims an epoch between this one's look and its claim."""

    def create(self, name: str, content: bytes) -> bool:
        if not self.list("heads"):
            super().create(name, b"another head")
        return super().create(name, content)


def test_two_heads_that_claim_at_once_get_different_epochs(tmp_path: Path) -> None:
    bucket = LateBucket(tmp_path / "store")
    claim = restore(bucket, tmp_path / "run", SECRET, HEAD)
    assert claim.epoch >= 4 and bucket.get(bucket.list("heads")[0]) == b"another head"
    assert start_of(tmp_path / "run").epoch == claim.epoch


def test_a_store_that_is_away_is_never_taken_for_an_empty_one(bucket: SwitchedBucket, tmp_path: Path) -> None:
    stored(bucket, tmp_path, 0, 40)
    bucket.is_away = True
    with pytest.raises(StoreError):
        restore(bucket, tmp_path / "run", SECRET, HEAD)
    bucket.is_away = False
    assert restore(bucket, tmp_path / "run", SECRET, HEAD).version == 40


def test_what_this_machine_has_is_not_brought_again(bucket: SwitchedBucket, tmp_path: Path) -> None:
    stored(bucket, tmp_path, 0, 40)
    restore(bucket, tmp_path / "run", SECRET, HEAD)
    at = checkpoint_path(tmp_path / "run", 0, 40).stat().st_ino
    restore(bucket, tmp_path / "run", SECRET, HEAD)
    assert checkpoint_path(tmp_path / "run", 0, 40).stat().st_ino == at


def test_what_is_torn_on_this_machine_is_brought_anew(bucket: SwitchedBucket, tmp_path: Path) -> None:
    stored(bucket, tmp_path, 0, 40)
    restore(bucket, tmp_path / "run", SECRET, HEAD)
    (checkpoint_path(tmp_path / "run", 0, 40) / "state").write_bytes(b"torn")
    assert restore(bucket, tmp_path / "run", SECRET, HEAD).version == 40
    assert newest_checkpoint(tmp_path / "run") is not None
