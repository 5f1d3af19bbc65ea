import json
import shutil
from pathlib import Path

import pytest

from hexcloud.runtime.atomic import atomic_directory, sha256_of
from hexcloud.runtime.checkpoint_index import (
    CheckpointInfo,
    checkpoint_path,
    is_sealed,
    is_whole,
    newest_checkpoint,
    next_epoch,
    prune_checkpoints,
    reserve_epochs,
    set_aside_torn,
    write_manifest,
)


def put(run_dir: Path, epoch: int, version: int) -> Path:
    path = checkpoint_path(run_dir, epoch, version)
    with atomic_directory(path) as draft:
        (draft / "shards").mkdir()
        (draft / "shards" / "0").write_text(f"{epoch}.{version}")
        write_manifest(draft)
    return path


def test_a_run_without_checkpoints_has_none(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) is None
    (tmp_path / "checkpoints").mkdir()
    assert newest_checkpoint(tmp_path) is None


def test_versions_are_numbers_and_epochs_come_first(tmp_path: Path) -> None:
    put(tmp_path, 0, 9)
    path = put(tmp_path, 0, 100)
    assert newest_checkpoint(tmp_path) == CheckpointInfo(0, 100, path)
    path = put(tmp_path, 1, 20)
    assert newest_checkpoint(tmp_path) == CheckpointInfo(1, 20, path)


def tear_content(path: Path) -> None:
    (path / "shards" / "0").write_text("other")


def tear_missing(path: Path) -> None:
    (path / "shards" / "0").unlink()


def tear_added(path: Path) -> None:
    (path / "shards" / "1").write_text("from elsewhere")


def tear_manifest(path: Path) -> None:
    (path / "manifest.json").write_bytes(b'{"files": {"sh\xff')


def tear_no_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()


@pytest.mark.parametrize("tear", [tear_content, tear_missing, tear_added, tear_manifest, tear_no_manifest])
def test_a_torn_checkpoint_is_passed_over_for_the_one_before(tmp_path: Path, tear: object) -> None:
    good, torn = put(tmp_path, 0, 20), put(tmp_path, 0, 40)
    assert callable(tear)
    tear(torn)
    assert not is_whole(torn)
    assert newest_checkpoint(tmp_path) == CheckpointInfo(0, 20, good)


def test_other_folders_and_drafts_are_not_checkpoints(tmp_path: Path) -> None:
    put(tmp_path, 0, 20)
    for name in (".0-40.draft", "0-40.bak", "latest"):
        (tmp_path / "checkpoints" / name).mkdir()
    found = newest_checkpoint(tmp_path)
    assert found is not None and found.version == 20


def test_pruning_keeps_two_whole_ones_and_counts_no_torn_one(tmp_path: Path) -> None:
    paths = [put(tmp_path, 0, version) for version in (20, 40, 60, 80)]
    tear_content(paths[2])
    prune_checkpoints(tmp_path)
    assert [path.exists() for path in paths] == [False, True, True, True]
    prune_checkpoints(tmp_path)
    assert newest_checkpoint(tmp_path) == CheckpointInfo(0, 80, paths[3])


def test_a_seal_is_the_manifest_and_the_sizes_it_names_and_is_no_proof_of_content(tmp_path: Path) -> None:
    path = put(tmp_path, 0, 20)
    assert is_sealed(path)
    (path / "shards" / "0").write_text("0.21")
    assert is_sealed(path) and not is_whole(path)
    for tear in (tear_content, tear_missing, tear_added, tear_manifest, tear_no_manifest):
        torn = put(tmp_path, 1, 20)
        tear(torn)
        assert not is_sealed(torn)
        shutil.rmtree(torn)


def test_a_manifest_without_sizes_seals_what_it_hashes(tmp_path: Path) -> None:
    path = put(tmp_path, 0, 20)
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({"files": manifest["files"]}))
    assert is_sealed(path) and is_whole(path)
    tear_content(path)
    assert not is_sealed(path)


def test_digests_that_are_known_are_noted_and_checked_like_others(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    write_manifest(tmp_path, {"a": sha256_of(tmp_path / "a")})
    assert is_whole(tmp_path)
    write_manifest(tmp_path, {"a": "0" * 64})
    assert is_sealed(tmp_path) and not is_whole(tmp_path)


def test_only_checkpoints_after_a_known_one_are_looked_at(tmp_path: Path) -> None:
    tear_content(put(tmp_path, 0, 20))
    path = put(tmp_path, 1, 0)
    assert newest_checkpoint(tmp_path, after=(0, 20)) == CheckpointInfo(1, 0, path)
    assert newest_checkpoint(tmp_path, after=(1, 0)) is None


def test_a_torn_checkpoint_has_used_up_its_epoch(tmp_path: Path) -> None:
    assert next_epoch(tmp_path) == 0
    put(tmp_path, 1, 60)
    tear_content(put(tmp_path, 2, 60))
    newest = newest_checkpoint(tmp_path)
    assert newest is not None and newest.epoch == 1
    assert next_epoch(tmp_path) == 3


def test_only_a_torn_checkpoint_gives_up_its_name(tmp_path: Path) -> None:
    whole, torn = put(tmp_path, 0, 20), put(tmp_path, 0, 40)
    for _ in range(2):
        tear_content(torn)
        set_aside_torn(torn)
        set_aside_torn(whole)
        assert whole.exists() and not torn.exists()
        put(tmp_path, 0, 40)
    assert (tmp_path / "checkpoints" / ".torn-0-40" / "shards" / "0").read_text() == "other"


def test_epochs_of_earlier_machines_are_left_to_them(tmp_path: Path) -> None:
    reserve_epochs(tmp_path, 8)
    assert next_epoch(tmp_path) == 8
    assert newest_checkpoint(tmp_path) is None
    put(tmp_path, 8, 20)
    assert next_epoch(tmp_path) == 9
