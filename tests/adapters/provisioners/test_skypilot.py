"""SkyPilotProvisioner on an emulated EC2, with a stand-in for SkyPilot's API server: every way that a launch can go."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

from hexcloud.adapters.clouds.aws import Patience
from hexcloud.adapters.clouds.aws_machines import AwsMachines
from hexcloud.adapters.provisioners.naming import NODE, own_tags
from hexcloud.adapters.provisioners.sky_calls import JobState, Progress
from hexcloud.adapters.provisioners.skypilot import SkyPilotProvisioner
from hexcloud.domain.command import Command
from hexcloud.domain.errors import (
    CapacityError,
    NotYetError,
    ProvisionError,
    RateLimitError,
    UnknownProvisionError,
)
from hexcloud.domain.fleet import Node, NodeId, RunId
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import Role
from tests.adapters.provisioners.sky_stand_in import SkyStandIn

RUN = RunId("main-1")


@dataclass
class Rented:
    """A provisioner, its SkyPilot, and the calls that a controller repeats every turn."""

    folder: Path
    sky: SkyStandIn
    machines: AwsMachines
    now: SkyPilotProvisioner

    def restart(self) -> None:
        """As after kill -9: only what is on disk and outside is left."""
        self.now.close()
        self.now = SkyPilotProvisioner(RUN, self.folder, self.sky, {"aws": self.machines}, wait_s=10.0)

    def launch(self, nodes: tuple[Node, ...], offer: Offer, turns: int = 20) -> str:
        """Launch as a controller does; return the phases that were said, in order."""
        phases: list[str] = []
        for _ in range(turns):
            try:
                self.now.launch(nodes, offer, tuple(command(node) for node in nodes))
            except NotYetError as wait:
                phases += [wait.phase] if not phases or phases[-1] != wait.phase else []
                continue
            return " ".join(phases)
        raise AssertionError(f"not through after {turns} turns: {phases}")

    def refusal(self, nodes: tuple[Node, ...], offer: Offer) -> ProvisionError:
        with pytest.raises(ProvisionError) as refused:
            self.launch(nodes, offer)
        return refused.value

    def end(self, node_id: NodeId, turns: int = 20) -> None:
        for _ in range(turns):
            try:
                self.now.terminate(node_id)
            except NotYetError:
                continue
            return
        raise AssertionError(f"not ended after {turns} turns")

    @property
    def listed(self) -> tuple[NodeId, ...]:
        return self.now.list_nodes(RUN)


@pytest.fixture
def rented(moto: Any, tmp_path: Path) -> Iterator[Rented]:
    machines = AwsMachines(Patience(connect_s=2, read_s=10, attempts=1))
    sky = SkyStandIn()
    provisioner = SkyPilotProvisioner(RUN, tmp_path, sky, {"aws": machines}, wait_s=10.0)
    found = Rented(tmp_path, sky, machines, provisioner)
    yield found
    moto.tell()
    machines.end(machines.listed({"hexcloud-run": ""}))
    found.now.close()
    machines.close()


@pytest.fixture
def here(offer: Offer) -> Offer:
    """The offer, in a zone that the emulated EC2 has."""
    return offer.model_copy(update={"zone": "use1-az6"})


@pytest.fixture
def gang(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    return tuple(
        node.model_copy(update={"role": Role.TRAINER, "rank": rank, "gang": len(nodes)})
        for rank, node in enumerate(nodes)
    )


def command(node: Node) -> Command:
    return Command(
        image=None,
        argv=("python", "-m", "hexcloud.node", node.role.value),
        env={},
        secrets={"HEXCLOUD_NODE_TOKEN": f"token of {node.id}"},
        files={"note.txt": node.id},
    )


def test_a_launch_says_its_phases_and_returns_once_the_program_runs(
    rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    rented.sky.launch_polls, rented.sky.job_state = 1, JobState.SETTING_UP
    with pytest.raises(AssertionError, match=r"\['provision', 'setup'\]"):
        rented.launch(nodes[:1], here, turns=6)
    rented.sky.job_state = JobState.RUNNING
    assert rented.launch(nodes[:1], here) == ""
    assert rented.listed == (nodes[0].id,)
    assert len(rented.sky.of("launch")) == 1


def test_a_node_is_launched_at_most_once_however_often_it_is_asked_for(
    rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    rented.launch(nodes[:1], here)
    asked = len(rented.sky.requests)
    for _ in range(3):
        rented.launch(nodes[:1], here)
    rented.restart()
    rented.launch(nodes[:1], here)
    assert len(rented.sky.requests) == asked and rented.listed == (nodes[0].id,)


def test_the_task_has_the_pool_that_the_plan_chose_and_its_secrets_only_as_secrets(
    rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    rented.launch(nodes[:1], here)
    (task,) = rented.sky.tasks.values()
    assert task["resources"]["infra"] == "aws/us-east-1/us-east-1a"
    assert task["resources"]["use_spot"] is True and task["resources"]["instance_type"] == "g5.xlarge"
    assert task["secrets"] == {"HEXCLOUD_NODE_TOKEN": f"token of {nodes[0].id}"}
    assert "token of" not in str({**task, "secrets": None})
    kept = [path.read_bytes() for path in rented.folder.rglob("*") if path.is_file()]
    assert kept and not any(b"token of" in content for content in kept)


def test_a_pool_without_room_is_refused_with_its_code_and_costs_nothing(
    moto: Any, rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    moto.tell(no_capacity=[{"zone": "us-east-1a", "times": 1}])
    error = rented.refusal(nodes[:1], here)
    assert type(error) is CapacityError and error.code == "InsufficientInstanceCapacity"
    assert rented.listed == () and rented.sky.clusters == {}
    assert rented.launch(nodes[:1], here) is not None and rented.listed == (nodes[0].id,)


def test_a_gang_that_is_refused_whole_costs_nothing(
    moto: Any, rented: Rented, here: Offer, gang: tuple[Node, ...]
) -> None:
    moto.tell(no_capacity=[{"zone": "us-east-1a", "code": "VcpuLimitExceeded"}])
    assert rented.refusal(gang, here).code == "VcpuLimitExceeded"
    assert rented.listed == ()
    assert [call["launch"] for call in moto.calls() if "launch" in call] == ["refused"]


def test_the_machines_of_a_gang_are_told_apart_in_rank_order(
    rented: Rented, here: Offer, gang: tuple[Node, ...]
) -> None:
    rented.launch(gang, here)
    assert len(rented.sky.clusters) == 1 and set(rented.listed) == {node.id for node in gang}
    by_ip = {machine.private_ip: machine.tags[NODE] for machine in rented.machines.listed({"hexcloud-run": "main-1"})}
    in_rank_order = [by_ip[ip] for ip in sorted(by_ip, reverse=True)]
    assert in_rank_order == [own_tags(node)[NODE] for node in gang]


def test_before_they_are_told_apart_all_of_a_gang_are_listed(
    rented: Rented, here: Offer, gang: tuple[Node, ...]
) -> None:
    rented.sky.launch_polls = 1
    with pytest.raises(NotYetError):
        rented.now.launch(gang, here, tuple(command(node) for node in gang))
    assert rented.listed == ()
    assert [rented.sky.progress(rented.sky.requests[0].id) for _ in range(2)][-1] is Progress.DONE
    assert set(rented.listed) == {node.id for node in gang}


def test_a_gang_that_loses_a_member_on_the_way_is_released(rented: Rented, here: Offer, gang: tuple[Node, ...]) -> None:
    rented.sky.job_state = JobState.SETTING_UP
    with pytest.raises(AssertionError, match="setup"):
        rented.launch(gang, here, turns=4)
    rented.machines.end(rented.machines.listed({"hexcloud-run": "main-1"})[2:])
    error = rented.refusal(gang, here)
    assert type(error) is CapacityError and "1 of 3 machines vanished" in str(error)
    assert rented.listed == ()


@pytest.mark.parametrize(
    ("state", "code"), [(JobState.SETUP_FAILED, "setup_failed"), (JobState.FAILED, "program_failed")]
)
def test_a_machine_on_which_nothing_runs_is_released(
    rented: Rented, here: Offer, nodes: tuple[Node, ...], state: JobState, code: str
) -> None:
    rented.sky.job_state = state
    error = rented.refusal(nodes[:1], here)
    assert type(error) is UnknownProvisionError and error.code == code and "sky logs hx-main-1" in str(error)
    assert rented.listed == ()


def test_a_refusal_is_said_only_when_nothing_is_left(rented: Rented, here: Offer, nodes: tuple[Node, ...]) -> None:
    rented.sky.job_state, rented.sky.down_polls = JobState.SETUP_FAILED, 3
    with pytest.raises(AssertionError, match="not through"):
        rented.launch(nodes[:1], here, turns=4)
    assert rented.listed == (nodes[0].id,)
    rented.restart()
    assert rented.refusal(nodes[:1], here).code == "setup_failed"
    assert rented.listed == ()


@pytest.mark.parametrize("turns", range(1, 5))
def test_a_restart_in_the_middle_of_a_launch_finds_it_again(
    rented: Rented, here: Offer, gang: tuple[Node, ...], turns: int
) -> None:
    rented.sky.launch_polls = 1
    for _ in range(turns):
        with suppress(NotYetError):
            rented.now.launch(gang, here, tuple(command(node) for node in gang))
    rented.restart()
    rented.launch(gang, here)
    assert len(rented.sky.of("launch")) == 1 and set(rented.listed) == {node.id for node in gang}


def test_a_launch_whose_answer_was_never_noted_is_found_by_its_cluster(
    rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    rented.sky.launch_polls = 2
    with pytest.raises(NotYetError):
        rented.now.launch(nodes[:1], here, (command(nodes[0]),))
    for file in (rented.folder / "sky").glob("*.json"):
        file.unlink()
    rented.restart()
    rented.launch(nodes[:1], here)
    assert len(rented.sky.of("launch")) == 1


def test_a_server_that_forgot_its_requests_gets_no_second_program_on_a_machine(
    rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    rented.sky.job_state = JobState.SETTING_UP
    with pytest.raises(AssertionError):
        rented.launch(nodes[:1], here, turns=1)
    rented.sky.progress(rented.sky.requests[0].id)
    rented.sky.restart()
    rented.sky.job_state = JobState.RUNNING
    rented.launch(nodes[:1], here)
    assert rented.sky.of("launch") == [] and rented.listed == (nodes[0].id,)


def test_a_server_that_does_not_answer_is_no_fault_of_the_pool(
    rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    rented.sky.is_silent = True
    assert type(rented.refusal(nodes[:1], here)) is RateLimitError
    rented.sky.is_silent = False
    rented.launch(nodes[:1], here)
    assert rented.listed == (nodes[0].id,)


def test_a_task_that_skypilot_does_not_take_says_how_to_mend_it(
    rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    rented.sky.refuses = ValueError("No instance type g5.xlarge found.")
    error = rented.refusal(nodes[:1], here)
    assert type(error) is UnknownProvisionError and "hexcloud catalog export" in str(error)


def test_a_slow_answer_never_holds_the_caller(rented: Rented, here: Offer, nodes: tuple[Node, ...]) -> None:
    hasty = SkyPilotProvisioner(RUN, rented.folder, rented.sky, {"aws": rented.machines}, wait_s=0.0)
    with pytest.raises(NotYetError) as wait:
        hasty.launch(nodes[:1], here, (command(nodes[0]),))
    assert wait.value.phase == "provision"
    hasty.close()
    rented.launch(nodes[:1], here)
    assert len(rented.sky.of("launch")) == 1


def test_an_end_takes_the_whole_gang_and_is_confirmed_by_the_cloud(
    rented: Rented, here: Offer, gang: tuple[Node, ...]
) -> None:
    rented.launch(gang, here)
    rented.sky.down_polls = 2
    with pytest.raises(NotYetError):
        rented.now.terminate(gang[1].id)
    assert set(rented.listed) == {node.id for node in gang}
    rented.end(gang[1].id)
    assert rented.listed == () and len(rented.sky.of("down")) == 1
    rented.end(gang[1].id)
    rented.end(NodeId("main-1.rollout-99.1"))


def test_an_end_in_the_middle_of_a_launch_leaves_nothing(rented: Rented, here: Offer, nodes: tuple[Node, ...]) -> None:
    rented.sky.launch_polls = 5
    with pytest.raises(NotYetError):
        rented.now.launch(nodes[:1], here, (command(nodes[0]),))
    rented.end(nodes[0].id)
    assert rented.listed == () and rented.sky.clusters == {}
    rented.launch(nodes[:1], here)
    assert rented.listed == () and len(rented.sky.of("launch")) == 1


def test_what_skypilot_refuses_to_end_the_cloud_ends(rented: Rented, here: Offer, nodes: tuple[Node, ...]) -> None:
    rented.launch(nodes[:1], here)
    rented.sky.down_fails = True
    rented.end(nodes[0].id)
    assert rented.listed == () and rented.sky.instances(next(iter(rented.sky.clusters))) == []


def test_what_skypilot_forgot_the_cloud_ends(rented: Rented, here: Offer, nodes: tuple[Node, ...]) -> None:
    rented.launch(nodes[:1], here)
    rented.sky.clusters.clear()
    rented.end(nodes[0].id)
    assert rented.listed == ()


def test_a_machine_that_every_store_forgot_is_listed_and_ended(
    rented: Rented, here: Offer, gang: tuple[Node, ...], tmp_path: Path
) -> None:
    rented.launch(gang, here)
    rented.sky.clusters.clear()
    rented.folder = tmp_path / "a new computer"
    rented.restart()
    assert set(rented.listed) == {node.id for node in gang}
    rented.end(gang[2].id)
    assert rented.listed == ()


@pytest.mark.parametrize(("do", "code"), [("error", "InternalError"), ("denied", "UnauthorizedOperation")])
def test_a_refused_end_is_said_and_asked_again(
    moto: Any, rented: Rented, here: Offer, nodes: tuple[Node, ...], do: str, code: str
) -> None:
    rented.launch(nodes[:1], here)
    rented.sky.clusters.clear()
    moto.tell(faults=[{"action": "TerminateInstances", "do": do}])
    with pytest.raises(UnknownProvisionError) as refused:
        rented.end(nodes[0].id)
    assert refused.value.code == code and rented.listed == (nodes[0].id,)
    moto.tell()
    rented.end(nodes[0].id)
    assert rented.listed == ()


def test_a_machine_found_again_after_its_end_is_ended_again(
    rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    rented.launch(nodes[:1], here)
    (task,) = rented.sky.tasks.values()
    rented.end(nodes[0].id)
    ec2 = boto3.client("ec2", "us-east-1")
    tags = [{"Key": key, "Value": value} for key, value in task["resources"]["labels"].items()]
    ec2.run_instances(
        ImageId="ami-12c6146b", MinCount=1, MaxCount=1, TagSpecifications=[{"ResourceType": "instance", "Tags": tags}]
    )
    ec2.close()
    assert rented.listed == (nodes[0].id,)
    rented.end(nodes[0].id)
    assert rented.listed == ()


def test_a_region_of_ours_without_an_answer_gives_no_list(
    moto: Any, rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    rented.launch(nodes[:1], here)
    moto.tell(faults=[{"action": "DescribeInstances", "region": "us-east-1", "do": "throttle"}])
    with pytest.raises(RateLimitError):
        assert rented.listed == "no list"


def test_a_region_that_is_none_of_ours_may_be_silent(
    moto: Any, rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    rented.launch(nodes[:1], here)
    moto.tell(faults=[{"action": "DescribeInstances", "region": "eu-west-1", "do": "error"}])
    assert rented.listed == (nodes[0].id,)


def test_a_cloud_that_cannot_be_asked_for_machines_is_not_rented_from(
    rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    elsewhere = here.model_copy(update={"cloud": "lambda"})
    assert rented.refusal(nodes[:1], elsewhere).code == "cloud"
