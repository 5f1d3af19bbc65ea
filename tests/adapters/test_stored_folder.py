from pathlib import Path

import pytest

from hexcloud.adapters.objects import Bucket
from hexcloud.adapters.stored_folder import download_files, download_folder, find_marker, upload_folder
from hexcloud.domain.errors import StoreError
from hexcloud.domain.stored import DamagedError
from tests.node.switched_bucket import SwitchedBucket

SECRET = "run-secret"


@pytest.fixture
def bucket(tmp_path: Path) -> SwitchedBucket:
    return SwitchedBucket(tmp_path / "store")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "made"
    (folder / "shards").mkdir(parents=True)
    (folder / "shards" / "0").write_bytes(b"weights" * 1000)
    (folder / "counters.json").write_text("{}")
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_comes_back_as_it_went(bucket: Bucket, folder: Path, tmp_path: Path) -> None:
    upload_folder(bucket, "checkpoints/0-20", folder, SECRET)
    download_folder(bucket, "checkpoints/0-20", tmp_path / "back", SECRET)
    assert content(tmp_path / "back") == content(folder)


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_head_killed_while_it_stores_leaves_nothing_that_looks_whole(
    bucket: SwitchedBucket, folder: Path, tmp_path: Path, writes: int
) -> None:
    bucket.writes_left = writes
    with pytest.raises(StoreError):
        upload_folder(bucket, "checkpoints/0-20", folder, SECRET)
    assert find_marker(bucket, "checkpoints/0-20", SECRET) is None
    with pytest.raises(DamagedError, match="no marker"):
        download_folder(bucket, "checkpoints/0-20", tmp_path / "back", SECRET)
    assert not download_files(bucket, "checkpoints/0-20", tmp_path / "back", SECRET)


def test_a_result_stored_anew_is_not_whole_until_it_is(bucket: SwitchedBucket, folder: Path, tmp_path: Path) -> None:
    upload_folder(bucket, "output", folder, SECRET)
    bucket.writes_left = 1
    with pytest.raises(StoreError):
        upload_folder(bucket, "output", folder, SECRET)
    assert not download_files(bucket, "output", tmp_path / "back", SECRET)


@pytest.mark.parametrize("damage", [b"", b"weights" * 999 + b"w3ights"])
def test_a_damaged_file_is_never_seen_under_its_name(
    bucket: Bucket, folder: Path, tmp_path: Path, damage: bytes
) -> None:
    upload_folder(bucket, "checkpoints/0-20", folder, SECRET)
    bucket.put("checkpoints/0-20/shards/0", damage)
    with pytest.raises(DamagedError, match="shards/0 in the run's store is not what its marker says"):
        download_folder(bucket, "checkpoints/0-20", tmp_path / "back", SECRET)
    with pytest.raises(DamagedError):
        download_files(bucket, "checkpoints/0-20", tmp_path / "files", SECRET)
    assert not (tmp_path / "back").exists() and list((tmp_path / "files").iterdir()) == []


def test_a_lost_file_is_damage_and_a_store_that_is_away_is_not(
    bucket: SwitchedBucket, folder: Path, tmp_path: Path
) -> None:
    upload_folder(bucket, "checkpoints/0-20", folder, SECRET)
    bucket.is_away = True
    with pytest.raises(StoreError) as caught:
        download_folder(bucket, "checkpoints/0-20", tmp_path / "back", SECRET)
    assert not isinstance(caught.value, DamagedError)
    bucket.is_away = False
    bucket.delete(("checkpoints/0-20/counters.json",))
    with pytest.raises(DamagedError):
        download_folder(bucket, "checkpoints/0-20", tmp_path / "back", SECRET)


def test_a_folder_that_somebody_else_stored_is_not_taken(bucket: Bucket, folder: Path, tmp_path: Path) -> None:
    upload_folder(bucket, "checkpoints/0-20", folder, "guess")
    with pytest.raises(DamagedError, match="not signed by this run"):
        download_folder(bucket, "checkpoints/0-20", tmp_path / "back", SECRET)


def test_files_join_those_that_are_there(bucket: Bucket, folder: Path, tmp_path: Path) -> None:
    upload_folder(bucket, "output", folder, SECRET)
    target = tmp_path / "mine"
    target.mkdir()
    (target / "notes.txt").write_text("kept")
    assert download_files(bucket, "output", target, SECRET)
    assert content(target) == content(folder) | {"notes.txt": b"kept"}
