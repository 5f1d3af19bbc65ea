"""What a real run does beside its turns, against emulated EC2."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from hexcloud import wiring
from hexcloud.adapters.provisioners.naming import cluster_name, tags_of
from hexcloud.adapters.store import SqliteStore
from hexcloud.cli.schedules import STRAYS, Schedules, refresh_prices, swept
from hexcloud.domain.fleet import Node, RunId
from hexcloud.domain.run import RunRecord, RunState


@pytest.fixture
def real(store: SqliteStore, run: RunRecord, moto: Any) -> RunRecord:
    spec = run.spec.model_copy(update={"provider": "skypilot", "store": "file:///nowhere", "refresh": None})
    real = run.model_copy(update={"spec": spec, "clock_scale": 1.0})
    store.save_run(real)
    return real


def machine(node: Node) -> str:
    tags = tags_of([node], cluster_name(node.run_id, node.slot, node.attempt))
    spec = {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
    asked = {"ImageId": "ami-12c6146b", "InstanceType": "g5.xlarge", "MinCount": 1, "MaxCount": 1}
    started = boto3.client("ec2", "us-east-1").run_instances(**asked, TagSpecifications=[spec])
    return str(started["Instances"][0]["InstanceId"])


@pytest.fixture
def machines(store: SqliteStore, real: RunRecord) -> Iterator[dict[str, str]]:
    """One machine each of a run that goes on elsewhere, of one that has ended, and of one that nobody here knows."""
    (node,) = store.nodes(real.id)
    ended = real.model_copy(update={"id": RunId("ended-1"), "state": RunState.DONE})
    store.save_run(ended)
    found = {run: machine(node.model_copy(update={"run_id": run})) for run in (real.id, "ended-1", "unknown-1")}
    yield found
    boto3.client("ec2", "us-east-1").terminate_instances(InstanceIds=list(found.values()))


def running() -> set[str]:
    states = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    found = boto3.client("ec2", "us-east-1").describe_instances(Filters=states)["Reservations"]
    return {instance["InstanceId"] for reservation in found for instance in reservation["Instances"]}


def test_machines_of_an_ended_run_are_ended_and_others_are_told_of(real: RunRecord, machines: dict[str, str]) -> None:
    told = swept(real)
    assert running() == {machines[real.id], machines["unknown-1"]}
    assert "ended 1 machines of run ended-1, which has ended" in told
    assert any("run unknown-1 (unknown here) bill on; `hexcloud down --all-runs`" in line for line in told)


def test_a_real_run_looks_for_forgotten_machines_when_it_starts_and_says_so_once(
    store: SqliteStore, real: RunRecord, machines: dict[str, str]
) -> None:
    for _ in range(2):
        with Schedules(real):
            assert machines["ended-1"] not in running()
    told = [event for _, event in store.events(real.id) if event.kind == STRAYS]
    assert "ended-1" in told[0].text


def test_a_local_run_asks_no_cloud(run: RunRecord, moto: Any) -> None:
    with Schedules(run):
        pass
    assert moto.calls() == []


def test_prices_that_cannot_be_read_cost_no_run(moto: Any) -> None:
    moto.tell(faults=[{"do": "expired"}])
    (problem,) = refresh_prices(("aws",))
    assert "aws" in problem.lower()


def test_live_prices_reach_the_market_of_the_next_turn(real: RunRecord, moto: Any) -> None:
    moto.tell(on_demand={"*": {"g5.xlarge": 0.9}}, spot_share=0.5)
    asked = real.model_copy(update={"policy": real.policy.model_copy(update={"clouds": ("aws",)})})
    source = wiring.market_source(asked)
    before = {offer.id: offer.usd_per_hour for offer in source.market(real.created_wall_s).offers}
    assert refresh_prices(("aws",)) == []
    after = {offer.id: offer.usd_per_hour for offer in source.market(real.created_wall_s).offers}
    moved = [name for name in before.keys() & after.keys() if "g5.xlarge/" in name and before[name] != after[name]]
    assert moved
