"""Preflight on Google Cloud."""

import pytest

from hexcloud.adapters.clouds.gcp import Patience
from hexcloud.adapters.clouds.gcp_access import PROJECT, open_access
from hexcloud.adapters.clouds.gcp_checks import READING, RENTING, gcp_checks
from tests.clouds.gcp_cloud import GcpCloud

SOON = Patience(call_s=5.0, retry_s=0.2, first_wait_s=0.01)
L4, SPOT_L4 = "gcp/us-central1/NVIDIA_L4_GPUS", "gcp/us-central1/PREEMPTIBLE_NVIDIA_L4_GPUS"


def check(gcp: GcpCloud, needs: dict[str, float] | None = None, *regions: str) -> dict[str, tuple[bool, str]]:
    checks = gcp_checks(needs or {}, regions, gcp.access, SOON)
    return {name: (ok, found) for name, ok, found in checks}


def test_a_good_account_passes_every_check(gcp: GcpCloud) -> None:
    found = check(gcp, {L4: 7}, "us-central1")
    assert all(ok for ok, _ in found.values()), found
    assert found["gcp project"][1] == "demo, 2 regions"
    assert found[f"gcp quota {L4}"][1] == "7 of 8 left, 7 needed"
    assert found["gcp quota gcp/global/GPUS_ALL_REGIONS"][1] == "12 of 16 left, 7 needed"


def test_too_small_a_quota_fails_with_its_numbers(gcp: GcpCloud) -> None:
    found = check(gcp, {L4: 8, SPOT_L4: 1, "gcp/us-central1/NVIDIA_H100_GPUS": 8})
    assert found[f"gcp quota {L4}"] == (False, "7 of 8 left, 8 needed; ask Google for a higher quota")
    assert found[f"gcp quota {SPOT_L4}"][0] is False
    assert "not listed" in found["gcp quota gcp/us-central1/NVIDIA_H100_GPUS"][1]


def test_all_needs_together_also_take_from_the_quota_over_all_regions(gcp: GcpCloud) -> None:
    over_all = check(gcp, {L4: 7, SPOT_L4: 6})["gcp quota gcp/global/GPUS_ALL_REGIONS"]
    assert over_all == (False, "12 of 16 left, 13 needed; ask Google for a higher quota")


def test_what_a_plan_takes_over_all_regions_is_counted_once(gcp: GcpCloud) -> None:
    over_all = "gcp/global/GPUS_ALL_REGIONS"
    assert check(gcp, {L4: 7, over_all: 7})[f"gcp quota {over_all}"] == (True, "12 of 16 left, 7 needed")


def test_lacking_permissions_are_named(gcp: GcpCloud) -> None:
    gcp.change(permissions=[*READING, *RENTING[1:]])
    ok, found = check(gcp)["gcp permissions"]
    assert not ok and found.startswith(f"lacking: {RENTING[0]}; grant ")


def test_a_region_that_the_project_lacks_is_named(gcp: GcpCloud) -> None:
    assert check(gcp, {}, "mars-north1")["gcp project"] == (False, "demo has no region mars-north1; plan without it")


@pytest.mark.parametrize(
    ("path", "name", "words"),
    [
        ("/skus", "gcp prices", "gcloud services enable cloudbilling.googleapis.com"),
        ("testIamPermissions", "gcp permissions", "gcloud services enable cloudresourcemanager.googleapis.com"),
        ("/regions", "gcp quotas", "gcloud services enable compute.googleapis.com"),
    ],
)
def test_an_api_that_is_switched_off_is_named(gcp: GcpCloud, path: str, name: str, words: str) -> None:
    gcp.change(faults=[{"path": path, "status": 403, "message": "API has not been used in project 1 before"}])
    ok, found = check(gcp, {L4: 1})[name]
    assert not ok and words in found


def test_without_credentials_nothing_else_is_asked(gcp: GcpCloud) -> None:
    checks = gcp_checks({}, access=lambda: open_access(environ={**gcp.environ, PROJECT: ""}), patience=SOON)
    assert [(name, ok) for name, ok, _ in checks] == [("gcp credentials", False)] and not gcp.asked()
