import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hexcloud.domain.messages import WeightsManifest
from hexcloud.runtime import coordinator_weights
from hexcloud.runtime.atomic import sha256_of
from hexcloud.runtime.coordinator_weights import PublishedWeights


def manifest(version: int, epoch: int = 0) -> WeightsManifest:
    return WeightsManifest(epoch=epoch, version=version, sha256=f"{epoch}/{version}", size=1)


def test_nothing_is_served_before_the_first_publication() -> None:
    weights = PublishedWeights(keep=2)
    assert weights.latest is None
    assert weights.path(0, 0) is None


def test_only_the_newest_versions_are_served() -> None:
    weights = PublishedWeights(keep=2)
    for version in range(4):
        weights.add(manifest(version), Path(f"/v{version}"))
    assert weights.latest == manifest(3)
    assert weights.path(0, 3) == Path("/v3")
    assert weights.path(0, 2) == Path("/v2")
    assert weights.path(0, 1) is None


def test_versions_of_an_abandoned_epoch_are_never_served() -> None:
    weights = PublishedWeights(keep=4)
    for version in range(3):
        weights.add(manifest(version), Path(f"/v{version}"))
    weights.add(manifest(1, epoch=1), Path("/again"))
    assert weights.latest == manifest(1, epoch=1)
    assert weights.path(1, 1) == Path("/again")
    assert [weights.path(0, version) for version in range(3)] == [None] * 3


def test_a_damaged_file_is_not_served_until_it_is_written_anew(tmp_path: Path) -> None:
    path, content = tmp_path / "weights", b"weights"
    path.write_bytes(content)
    weights = PublishedWeights(keep=2)
    digest = hashlib.sha256(content).hexdigest()
    weights.add(WeightsManifest(epoch=0, version=0, sha256=digest, size=len(content)), path)
    assert weights.intact_path(0, 0) == path
    path.write_bytes(b"wEights")
    os.utime(path, ns=(1, 1))  # a clock too coarse to tell the two writes apart is no matter here
    assert weights.intact_path(0, 0) is None and weights.is_latest_damaged
    path.unlink()
    assert weights.intact_path(0, 0) is None and weights.is_latest_damaged
    path.write_bytes(content)
    assert weights.intact_path(0, 0) == path and not weights.is_latest_damaged


def test_a_file_that_many_ask_for_is_read_once_and_again_only_when_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def reading(path: Path) -> str:
        read.append(path)
        return sha256_of(path)

    monkeypatch.setattr(coordinator_weights, "sha256_of", reading)
    path, content = tmp_path / "weights", bytes(1 << 20)
    path.write_bytes(content)
    told = path, hashlib.sha256(content).hexdigest(), len(content)
    weights = PublishedWeights(keep=2)
    assert weights.holds(*told)  # as it is published
    weights.add(WeightsManifest(epoch=0, version=0, sha256=told[1], size=told[2]), path)
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(lambda _: weights.intact_path(0, 0), range(8))) == {path}
    assert read == [path]
    assert not weights.holds(path, "0" * 64, told[2]), "what it was found to hold is not another thing"
    os.utime(path, ns=(1, 1))
    assert weights.intact_path(0, 0) == path and len(read) == 3


def test_the_next_version_is_served_whatever_became_of_the_one_before(tmp_path: Path) -> None:
    content = b"weights"
    weights = PublishedWeights(keep=2)
    for version in range(2):
        (tmp_path / str(version)).write_bytes(content)
        entry = WeightsManifest(epoch=0, version=version, sha256=hashlib.sha256(content).hexdigest(), size=7)
        weights.add(entry, tmp_path / str(version))
        (tmp_path / "0").write_bytes(b"")
        assert (weights.intact_path(0, version) is None) == weights.is_latest_damaged == (version == 0)
