from pathlib import Path

from hexcloud.domain.messages import WeightsManifest
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
