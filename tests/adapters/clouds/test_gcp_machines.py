"""Machines by label on Compute Engine, over HTTP on loopback."""

import time
from typing import Any

import pytest
from google.cloud import compute_v1
from google.oauth2.credentials import Credentials

from hexcloud.adapters.clouds.gcp_access import Service
from hexcloud.adapters.clouds.gcp_machines import GcpMachines
from hexcloud.domain.errors import CredentialsError, RateLimitError, UnknownProvisionError
from tests.clouds.gcp_cloud import GcpCloud

HERE, THERE = "us-central1-a", "europe-west4-a"
RUN = {"hexcloud-run": "main-1"}


@pytest.fixture
def machines(gcp: GcpCloud) -> GcpMachines:
    return GcpMachines(gcp.access())


def start(gcp: GcpCloud, zone: str, name: str, labels: dict[str, str]) -> None:
    access = gcp.access()
    options = access.client_options(Service.COMPUTE)
    wanted = compute_v1.Instance(
        name=name,
        machine_type=f"zones/{zone}/machineTypes/g2-standard-4",
        labels=labels,
        network_interfaces=[compute_v1.NetworkInterface(network_i_p="10.0.0.7")],
    )
    with compute_v1.InstancesClient(
        credentials=access.credentials_for(Service.COMPUTE), client_options=options
    ) as client:
        client.insert_unary(project="demo", zone=zone, instance_resource=wanted)


def names(machines: GcpMachines, tags: dict[str, str], *regions: str) -> set[str]:
    return {machine.id for machine in machines.listed(tags, regions)}


def test_machines_of_a_run_are_found_in_every_region(gcp: GcpCloud, machines: GcpMachines) -> None:
    start(gcp, HERE, "one", RUN | {"hexcloud-slot": "rollout-0"})
    start(gcp, THERE, "two", RUN)
    start(gcp, HERE, "other", {"hexcloud-run": "main-2"})
    start(gcp, HERE, "stranger", {"env": "prod"})
    assert names(machines, RUN) == {"one", "two"}
    assert names(machines, {"hexcloud-run": ""}) == {"one", "two", "other"}
    assert names(machines, RUN, "europe-west4") == {"two"}
    assert names(machines, RUN | {"hexcloud-slot": "rollout-0"}) == {"one"}
    (found,) = machines.listed(RUN, ["us-central1"])
    assert (found.cloud, found.region, found.zone, found.id) == ("gcp", "us-central1", HERE, "one")
    assert (found.instance_type, found.private_ip) == ("g2-standard-4", "10.0.0.7")
    assert found.tags == {"hexcloud-run": "main-1", "hexcloud-slot": "rollout-0"}
    assert found.began_s is not None and abs(time.time() - found.began_s) < 60.0
    assert machines.known(RUN, ["us-central1"]) == (found,)


def test_the_cloud_itself_picks_by_label_and_no_stranger_is_sent(gcp: GcpCloud, machines: GcpMachines) -> None:
    names(machines, RUN)
    (asked,) = gcp.asked("aggregated/instances")
    assert "labels.hexcloud-run" in asked


def test_a_machine_that_was_taken_away_still_bills_its_disk(gcp: GcpCloud, machines: GcpMachines) -> None:
    start(gcp, HERE, "one", RUN)
    gcp.preempt(HERE, "one")
    assert names(machines, RUN) == {"one"}


def test_machines_are_ended_and_one_that_ended_meanwhile_is_fine(gcp: GcpCloud, machines: GcpMachines) -> None:
    start(gcp, HERE, "one", RUN)
    start(gcp, THERE, "two", RUN)
    found = machines.listed(RUN)
    machines.end(found[:1])
    machines.end(found)
    assert names(machines, RUN) == set()


def test_one_that_is_refused_keeps_no_other_alive(gcp: GcpCloud, machines: GcpMachines) -> None:
    for zone, name in ((HERE, "one"), (HERE, "two"), (THERE, "three")):
        start(gcp, zone, name, RUN)
    found = sorted(machines.listed(RUN), key=lambda machine: machine.id != "one")
    gcp.change(faults=[{"method": "DELETE", "path": "/instances/one", "status": 403, "reason": "forbidden"}])
    with pytest.raises(UnknownProvisionError, match="Google Cloud machine one: "):
        machines.end(found)
    assert names(machines, RUN) == {"one"}


def test_a_machine_of_a_gang_is_told_apart(gcp: GcpCloud, machines: GcpMachines) -> None:
    for name in ("one", "two"):
        start(gcp, HERE, name, RUN)
    one, _ = machines.listed(RUN)
    machines.tag(one, {"hexcloud-node": "trainer-0_2e1"})
    assert names(machines, RUN | {"hexcloud-node": "trainer-0_2e1"}) == {one.id}
    assert names(machines, RUN) == {"one", "two"}


@pytest.mark.parametrize(
    ("fault", "kind", "code"),
    [
        ({"status": 429, "reason": "rateLimitExceeded"}, RateLimitError, "rateLimitExceeded"),
        ({"status": 403, "reason": "rateLimitExceeded", "message": "rateLimitExceeded"}, RateLimitError, None),
        ({"status": 401, "reason": "authError"}, CredentialsError, None),
        ({"status": 403, "reason": "forbidden"}, UnknownProvisionError, "forbidden"),
        ({"status": 500, "reason": "backendError"}, UnknownProvisionError, "backendError"),
        ({"body": "<html>sign in here</html>"}, UnknownProvisionError, None),
    ],
)
def test_a_refused_end_is_said_by_its_kind(
    gcp: GcpCloud, machines: GcpMachines, fault: dict[str, Any], kind: type[Exception], code: str | None
) -> None:
    start(gcp, HERE, "one", RUN)
    found = machines.listed(RUN)
    gcp.change(faults=[{"method": "DELETE", "path": "/instances/one", **fault}])
    with pytest.raises(kind, match="Google Cloud machine one: ") as refused:
        machines.end(found)
    assert code is None or getattr(refused.value, "code", "") == code
    gcp.change(faults=[])
    assert names(machines, RUN) == {"one"}


def test_expired_and_missing_credentials_are_said(gcp: GcpCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    login: Any = Credentials
    expired = login(None, refresh_token="old", token_uri=f"{gcp.url}/token", client_id="id", client_secret="x")
    with pytest.raises(CredentialsError, match="gcloud auth application-default login"):
        GcpMachines(gcp.access(expired)).listed(RUN)
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "http://example.com")
    with pytest.raises(CredentialsError, match="must be https"):
        GcpMachines().listed(RUN)


def test_zones_have_one_name(machines: GcpMachines) -> None:
    assert machines.zone_name("us-central1", HERE) == HERE
