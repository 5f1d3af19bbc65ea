"""The stand-in for Google Cloud, asked by Google's own client library: it must answer as the real one does."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from google.api_core.exceptions import BadRequest, Conflict, NotFound, ServiceUnavailable
from google.cloud import compute_v1

from hexcloud.adapters.clouds.gcp_access import Service
from tests.clouds.gcp_cloud import GcpCloud

ZONE = "us-central1-a"


@pytest.fixture
def instances(gcp: GcpCloud) -> Iterator[compute_v1.InstancesClient]:
    with compute_v1.InstancesClient(**arguments(gcp)) as client:
        yield client


def arguments(gcp: GcpCloud) -> dict[str, Any]:
    access = gcp.access()
    options = access.client_options(Service.COMPUTE)
    return {"credentials": access.credentials_for(Service.COMPUTE), "client_options": options}


def spot(name: str, ending: str = "STOP") -> compute_v1.Instance:
    scheduling = compute_v1.Scheduling(provisioning_model="SPOT", instance_termination_action=ending)
    machine_type = f"zones/{ZONE}/machineTypes/g2-standard-4"
    return compute_v1.Instance(name=name, machine_type=machine_type, scheduling=scheduling, labels={"run": "one"})


def start(instances: compute_v1.InstancesClient, instance: compute_v1.Instance) -> compute_v1.Operation:
    return instances.insert_unary(project="demo", zone=ZONE, instance_resource=instance)


def test_a_machine_starts_runs_is_listed_and_goes(gcp: GcpCloud, instances: compute_v1.InstancesClient) -> None:
    operation = start(instances, spot("vm1"))
    with compute_v1.ZoneOperationsClient(**arguments(gcp)) as operations:
        assert operations.get(project="demo", zone=ZONE, operation=operation.name).status.name == "DONE"
    found = instances.get(project="demo", zone=ZONE, instance="vm1")
    assert (found.status, found.labels["run"], found.scheduling.provisioning_model) == ("RUNNING", "one", "SPOT")
    assert [one.name for one in instances.list(project="demo", zone=ZONE)] == ["vm1"]
    everywhere = {at: [one.name for one in what.instances] for at, what in instances.aggregated_list(project="demo")}
    assert everywhere[f"zones/{ZONE}"] == ["vm1"] and len(everywhere) == 3
    with pytest.raises(Conflict):
        start(instances, spot("vm1"))
    instances.delete_unary(project="demo", zone=ZONE, instance="vm1")
    with pytest.raises(NotFound):
        instances.get(project="demo", zone=ZONE, instance="vm1")


def test_a_machine_takes_its_time(gcp: GcpCloud, instances: compute_v1.InstancesClient) -> None:
    def status() -> str:
        return str(instances.get(project="demo", zone=ZONE, instance="vm1").status)

    gcp.change(boot_s=5.0)
    begun_s = time.monotonic()
    assert start(instances, spot("vm1")).status.name == "PENDING"
    assert status() == "PROVISIONING"
    while status() == "PROVISIONING":
        assert time.monotonic() - begun_s < 60.0
        time.sleep(0.1)
    assert status() == "RUNNING" and time.monotonic() - begun_s >= 5.0


def test_a_spot_machine_is_taken_away(gcp: GcpCloud, instances: compute_v1.InstancesClient) -> None:
    start(instances, spot("stays"))
    start(instances, spot("goes", "DELETE"))
    gcp.preempt(ZONE, "stays")
    gcp.preempt(ZONE, "goes")
    listed = {one.name: one.status for one in instances.list(project="demo", zone=ZONE)}
    assert listed == {"stays": "TERMINATED"}


def test_a_zone_without_room_refuses_in_the_operation(gcp: GcpCloud, instances: compute_v1.InstancesClient) -> None:
    gcp.change(refusals=[{"zone": "us-central1", "machine": "^g2-", "times": 1}])
    refused = start(instances, spot("vm1"))
    assert [error.code for error in refused.error.errors] == ["ZONE_RESOURCE_POOL_EXHAUSTED"]
    assert list(instances.list(project="demo", zone=ZONE)) == []
    assert not start(instances, spot("vm1")).error.errors


def test_faults_come_as_the_real_errors(gcp: GcpCloud, instances: compute_v1.InstancesClient) -> None:
    gcp.change(faults=[{"method": "POST", "path": "/instances", "status": 503, "reason": "stockout"}])
    with pytest.raises(ServiceUnavailable):
        start(instances, spot("vm1"))
    with compute_v1.ZonesClient(**arguments(gcp)) as zones:
        assert zones.get(project="demo", zone=ZONE).status == "UP"
        with pytest.raises(BadRequest):
            zones.list(compute_v1.ListZonesRequest(project="demo", filter="name like x"))
        with pytest.raises(BadRequest):
            zones.list(compute_v1.ListZonesRequest(project="demo", page_token="x"))
        with pytest.raises(NotFound):
            zones.get(project="demo", zone="mars-a")
        with pytest.raises(NotFound):
            zones.list(project="another")


def test_single_things_can_be_asked_for(gcp: GcpCloud) -> None:
    with compute_v1.RegionsClient(**arguments(gcp)) as regions:
        assert regions.get(project="demo", region="us-central1").quotas[1].metric == "NVIDIA_L4_GPUS"
    with compute_v1.MachineTypesClient(**arguments(gcp)) as machines:
        assert machines.get(project="demo", zone=ZONE, machine_type="a2-highgpu-8g").guest_cpus == 96
    with compute_v1.AcceleratorTypesClient(**arguments(gcp)) as accelerators:
        found = {at: what.accelerator_types for at, what in accelerators.aggregated_list(project="demo")}
        assert len(found) == 3 and found["zones/us-central1-b"][0].name == "nvidia-tesla-t4"
