"""How a cluster comes up, and every way in which it does not."""

from typing import Any

import pytest

from hexcloud.adapters.provisioners.naming import NODE, own_tags
from hexcloud.adapters.provisioners.sky_calls import JobState
from hexcloud.domain.errors import (
    CapacityError,
    CredentialsError,
    NotYetError,
    QuotaError,
    RateLimitError,
    UnknownProvisionError,
)
from hexcloud.domain.fleet import Node
from hexcloud.domain.offer import Offer
from tests.adapters.provisioners.renting import Rented, command


def test_a_launch_says_its_phases_and_returns_once_the_program_runs(
    rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    rented.sky.launch_polls, rented.sky.job_state = 1, JobState.SETTING_UP
    with pytest.raises(AssertionError, match=r"\['provision', 'setup'\]"):
        rented.launch(nodes[:1], here, turns=6)
    rented.sky.job_state = JobState.RUNNING
    assert rented.launch(nodes[:1], here) == ""
    assert rented.listed() == (nodes[0].id,)
    assert len(rented.sky.of("launch")) == 1


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
    assert rented.listed() == () and rented.sky.clusters == {}
    assert rented.launch(nodes[:1], here) is not None and rented.listed() == (nodes[0].id,)


def test_a_gang_that_is_refused_whole_costs_nothing(
    moto: Any, rented: Rented, here: Offer, gang: tuple[Node, ...]
) -> None:
    moto.tell(no_capacity=[{"zone": "us-east-1a", "code": "VcpuLimitExceeded"}])
    assert rented.refusal(gang, here).code == "VcpuLimitExceeded"
    assert rented.listed() == ()
    assert [call["launch"] for call in moto.calls() if "launch" in call] == ["refused"]


@pytest.mark.parametrize("is_zone_known", [False, True])
@pytest.mark.parametrize(("is_dead", "kind"), [(False, QuotaError), (True, CredentialsError)])
def test_a_region_that_is_not_enabled_is_refused_by_itself_unless_the_credentials_are_dead(
    moto: Any,
    rented: Rented,
    here: Offer,
    nodes: tuple[Node, ...],
    is_zone_known: bool,
    is_dead: bool,
    kind: type[Exception],
) -> None:
    if is_zone_known:
        rented.machines.zone_name(here.region, here.zone or "")
    faults = [{"service": "ec2", "region": here.region, "do": "unknown"}]
    moto.tell(faults=faults + ([{"service": "sts", "do": "unknown"}] if is_dead else []))
    error = rented.refusal(nodes[:1], here)
    assert type(error) is kind and error.code == "AuthFailure"
    assert len(rented.sky.of("launch")) == int(is_zone_known)
    moto.tell()
    assert rented.listed() == ()
    if not is_dead:
        rented.launch(nodes[:1], here)
        assert rented.listed() == (nodes[0].id,)


def test_a_region_that_closes_upon_a_failed_launch_is_not_taken_for_empty(
    moto: Any, rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    rented.sky.job_state, rented.sky.down_fails = JobState.SETTING_UP, True
    with pytest.raises(AssertionError):
        rented.launch(nodes[:1], here, turns=4)
    rented.sky.job_state = JobState.SETUP_FAILED
    moto.tell(faults=[{"service": "ec2", "region": here.region, "do": "unknown"}])
    assert type(rented.refusal(nodes[:1], here)) is UnknownProvisionError
    moto.tell()
    assert rented.listed() == (nodes[0].id,)


def test_the_machines_of_a_gang_are_told_apart_in_rank_order(
    rented: Rented, here: Offer, gang: tuple[Node, ...]
) -> None:
    rented.launch(gang, here)
    assert len(rented.sky.clusters) == 1 and set(rented.listed()) == {node.id for node in gang}
    by_ip = {machine.private_ip: machine.tags[NODE] for machine in rented.machines.listed({"hexcloud-run": "main-1"})}
    in_rank_order = [by_ip[ip] for ip in sorted(by_ip, reverse=True)]
    assert in_rank_order == [own_tags(node)[NODE] for node in gang]


def test_a_gang_that_loses_a_member_on_the_way_is_released(rented: Rented, here: Offer, gang: tuple[Node, ...]) -> None:
    rented.sky.job_state = JobState.SETTING_UP
    with pytest.raises(AssertionError, match="setup"):
        rented.launch(gang, here, turns=4)
    rented.machines.end(rented.machines.listed({"hexcloud-run": "main-1"})[2:])
    error = rented.refusal(gang, here)
    assert type(error) is CapacityError and "1 of 3 machines vanished" in str(error)
    assert rented.listed() == ()


@pytest.mark.parametrize(
    ("state", "code"), [(JobState.SETUP_FAILED, "setup_failed"), (JobState.FAILED, "program_failed")]
)
def test_a_machine_on_which_nothing_runs_is_released(
    rented: Rented, here: Offer, nodes: tuple[Node, ...], state: JobState, code: str
) -> None:
    rented.sky.job_state = state
    error = rented.refusal(nodes[:1], here)
    assert type(error) is UnknownProvisionError and error.code == code and "no torch" in str(error)
    assert rented.listed() == ()


def test_a_refusal_is_said_only_when_nothing_is_left(rented: Rented, here: Offer, nodes: tuple[Node, ...]) -> None:
    rented.sky.job_state, rented.sky.down_polls = JobState.SETUP_FAILED, 3
    with pytest.raises(AssertionError, match="not through"):
        rented.launch(nodes[:1], here, turns=4)
    assert rented.listed() == (nodes[0].id,)
    rented.restart()
    assert rented.refusal(nodes[:1], here).code == "setup_failed"
    assert rented.listed() == ()


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
    assert rented.sky.of("launch") == [] and rented.listed() == (nodes[0].id,)


def test_a_server_that_does_not_answer_is_no_fault_of_the_pool(
    rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    rented.sky.is_silent = True
    assert type(rented.refusal(nodes[:1], here)) is RateLimitError
    rented.sky.is_silent = False
    rented.launch(nodes[:1], here)
    assert rented.listed() == (nodes[0].id,)


def test_a_task_that_skypilot_does_not_take_says_how_to_mend_it(
    rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    rented.sky.refuses = ValueError("No instance type g5.xlarge found.")
    error = rented.refusal(nodes[:1], here)
    assert type(error) is UnknownProvisionError and "hexcloud catalog export" in str(error)
