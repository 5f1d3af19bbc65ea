"""Preflight on Google Cloud."""

from collections.abc import Iterator

import pytest

from hexcloud.adapters.clouds.gcp import Patience
from hexcloud.adapters.clouds.gcp_access import PROJECT, open_access
from hexcloud.adapters.clouds.gcp_checks import READING, RENTING, gcp_checks
from tests.clouds.gcp_cloud import GcpCloud, gcp_cloud
from tests.clouds.gcp_scenario import small_cloud

SOON = Patience(call_s=5.0, retry_s=0.2, first_wait_s=0.01)
L4, SPOT_L4 = "gcp/us-central1/NVIDIA_L4_GPUS", "gcp/us-central1/PREEMPTIBLE_NVIDIA_L4_GPUS"


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcpCloud]:
    with gcp_cloud(small_cloud(), tmp_path_factory.mktemp("gcp")) as running:
        yield running


@pytest.fixture
def cloud(process: GcpCloud) -> GcpCloud:
    process.start_again(small_cloud())
    return process


def check(cloud: GcpCloud, needs: dict[str, float] | None = None, *regions: str) -> dict[str, tuple[bool, str]]:
    checks = gcp_checks(needs or {}, regions, cloud.access, SOON)
    return {name: (ok, found) for name, ok, found in checks}


def test_a_good_account_passes_every_check(cloud: GcpCloud) -> None:
    found = check(cloud, {L4: 7}, "us-central1")
    assert all(ok for ok, _ in found.values()), found
    assert found["gcp project"][1] == "demo, 2 regions"
    assert found[f"gcp quota {L4}"][1] == "7 of 8 left, 7 needed"
    assert found["gcp quota gcp/global/GPUS_ALL_REGIONS"][1] == "12 of 16 left, 7 needed"


def test_too_small_a_quota_fails_with_its_numbers(cloud: GcpCloud) -> None:
    found = check(cloud, {L4: 8, SPOT_L4: 1, "gcp/us-central1/NVIDIA_H100_GPUS": 8})
    assert found[f"gcp quota {L4}"] == (False, "7 of 8 left, 8 needed; ask Google for a higher quota")
    assert found[f"gcp quota {SPOT_L4}"][0] is False
    assert "not listed" in found["gcp quota gcp/us-central1/NVIDIA_H100_GPUS"][1]


def test_all_needs_together_also_take_from_the_quota_over_all_regions(cloud: GcpCloud) -> None:
    over_all = check(cloud, {L4: 7, SPOT_L4: 6})["gcp quota gcp/global/GPUS_ALL_REGIONS"]
    assert over_all == (False, "12 of 16 left, 13 needed; ask Google for a higher quota")


def test_what_a_plan_takes_over_all_regions_is_counted_once(cloud: GcpCloud) -> None:
    over_all = "gcp/global/GPUS_ALL_REGIONS"
    assert check(cloud, {L4: 7, over_all: 7})[f"gcp quota {over_all}"] == (True, "12 of 16 left, 7 needed")


def test_lacking_permissions_are_named(cloud: GcpCloud) -> None:
    cloud.change(permissions=[*READING, *RENTING[1:]])
    ok, found = check(cloud)["gcp permissions"]
    assert not ok and found.startswith(f"lacking: {RENTING[0]}; grant ")


def test_a_region_that_the_project_lacks_is_named(cloud: GcpCloud) -> None:
    assert check(cloud, {}, "mars-north1")["gcp project"] == (False, "demo has no region mars-north1; plan without it")


@pytest.mark.parametrize(
    ("path", "name", "words"),
    [
        ("/skus", "gcp prices", "gcloud services enable cloudbilling.googleapis.com"),
        ("testIamPermissions", "gcp permissions", "gcloud services enable cloudresourcemanager.googleapis.com"),
        ("/regions", "gcp quotas", "gcloud services enable compute.googleapis.com"),
    ],
)
def test_an_api_that_is_switched_off_is_named(cloud: GcpCloud, path: str, name: str, words: str) -> None:
    cloud.change(faults=[{"path": path, "status": 403, "message": "API has not been used in project 1 before"}])
    ok, found = check(cloud, {L4: 1})[name]
    assert not ok and words in found


def test_without_credentials_nothing_else_is_asked(cloud: GcpCloud) -> None:
    checks = gcp_checks({}, access=lambda: open_access(environ={**cloud.environ, PROJECT: ""}), patience=SOON)
    assert [(name, ok) for name, ok, _ in checks] == [("gcp credentials", False)] and not cloud.asked()
