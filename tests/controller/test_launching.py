"""A launch that takes its time, is late, or is refused in every way a provider knows."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from hexcloud.controller.outside import Ports, Timing
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.errors import (
    GLOBAL_GPUS,
    CapacityError,
    CredentialsError,
    NotYetError,
    ProvisionError,
    QuotaError,
    RateLimitError,
    UnknownProvisionError,
)
from hexcloud.domain.event import Event
from hexcloud.domain.fleet import Node, NodeStatus
from hexcloud.domain.policy import Policy
from hexcloud.domain.run import RunState
from hexcloud.simulator.cloud import Habits
from hexcloud.simulator.faults import Fault
from hexcloud.simulator.simulation import Script, Simulation

ControllerOf = Callable[[Simulation], Controller]
PortsOf = Callable[..., Ports]
POLICY = Policy(target_samples_per_s=20.0)
TIMING = Timing(poll_s=5.0, spend_lease_s=600.0, provision_s=100.0, setup_s=200.0, register_s=300.0, drain_s=60.0)


def turns(sim: Simulation, controller: Controller, count: int) -> None:
    for _ in range(count):
        controller.reconcile_once()
        sim.clock.sleep(5.0)


def started(controller_of: ControllerOf, *faults: Fault, turns_: int = 60) -> Simulation:
    sim = Simulation(POLICY, Script(faults=faults))
    turns(sim, controller_of(sim), turns_)
    return sim


def kinds(sim: Simulation) -> list[str]:
    return [event.kind for _, event in sim.store.events(sim.run.id)]


def events(sim: Simulation, kind: str) -> list[Event]:
    return [event for _, event in sim.store.events(sim.run.id) if event.kind == kind]


def nodes(sim: Simulation) -> tuple[Node, ...]:
    return sim.store.nodes(sim.run.id)


@pytest.mark.parametrize("error", [RateLimitError("slow down"), NotYetError("starting")])
def test_a_provider_that_asks_for_patience_gets_the_same_node_asked_again(
    controller_of: ControllerOf, error: ProvisionError
) -> None:
    sim = started(controller_of, Fault(0, error, "launch"), Fault(3, error, "launch"))
    assert len(nodes(sim)) == len(sim.cloud.running()) == 3
    assert "pool_blocked" not in kinds(sim)


def test_a_throttled_account_is_left_alone_by_every_launch_on_that_cloud(controller_of: ControllerOf) -> None:
    throttled = [Fault(nth, RateLimitError("slow down"), "launch") for nth in range(4)]
    sim = started(controller_of, *throttled, turns_=1)
    # Both rollout nodes are on aws, the trainer is on lambda: the second aws launch was not even tried.
    assert sim.faults.calls["launch"] == 2
    turns(sim, controller_of(sim), 60)
    assert len(nodes(sim)) == len(sim.cloud.running()) == 3


def test_an_unknown_error_is_tried_three_times_and_then_another_offer_is_bought(controller_of: ControllerOf) -> None:
    # The first node is asked for at the calls 0, 3 and 4: the other two succeed at once.
    error = UnknownProvisionError("no such thing", code="FlyingPigs")
    sim = started(controller_of, *(Fault(nth, error, "launch") for nth in (0, 3, 4)))
    first = nodes(sim)[0]
    assert first.status is NodeStatus.GONE
    told = events(sim, "launch_failed")
    assert len(told) == 3
    assert told[0].fields["code"] == "FlyingPigs" and "FlyingPigs: no such thing" in told[0].text
    assert len(sim.cloud.running()) == 3
    assert all(machine.offer.id != first.offer_id for machine in sim.cloud.running())


def test_a_machine_that_an_error_hid_is_found_and_not_rented_again(controller_of: ControllerOf) -> None:
    sim = started(controller_of, Fault(0, UnknownProvisionError("timeout"), "launch", after=True))
    assert len(sim.cloud.machines) == 3
    assert all(node.status is NodeStatus.READY for node in nodes(sim))


def test_a_quota_blocks_every_pool_of_the_family_in_that_region(controller_of: ControllerOf) -> None:
    sim = started(controller_of, Fault(0, QuotaError("limit is 0"), "launch"), turns_=1)
    refused = nodes(sim)[0].offer_id
    blocked = sim.store.blocks(sim.run.id, sim.clock.now_s() - 5.0)
    assert refused in blocked
    assert all(offer.split("/")[:2] == refused.split("/")[:2] for offer in blocked)


def test_a_limit_over_all_regions_blocks_every_gpu_of_the_cloud_in_that_tenure(controller_of: ControllerOf) -> None:
    sim = started(controller_of, Fault(0, QuotaError("limit is 16", code=GLOBAL_GPUS), "launch"), turns_=1)
    market = sim.market.market(sim.clock.now_s())
    refused = market.offer(nodes(sim)[0].offer_id)
    assert refused is not None
    same = {one.id for one in market.offers if (one.cloud, one.tenure) == (refused.cloud, refused.tenure)}
    assert set(sim.store.blocks(sim.run.id, sim.clock.now_s() - 5.0)) == same
    assert len({offer.split("/")[1] for offer in same}) > 1, "in more than one region"


def test_expired_credentials_end_the_run_with_a_line_that_says_so(controller_of: ControllerOf) -> None:
    sim = Simulation(POLICY, Script(faults=(Fault(0, CredentialsError("the token has expired"), "launch"),)))
    state = controller_of(sim).run_until_done()
    run = sim.store.run(sim.run.id)
    assert state is RunState.FAILED
    assert run is not None and "refused our credentials: the token has expired" in run.reason
    assert not sim.cloud.running()


def test_a_launch_on_its_way_is_asked_again_until_it_is_through_also_by_the_next_controller(
    controller_of: ControllerOf,
) -> None:
    sim = Simulation(POLICY, Script(habits=Habits(provision_s=60.0, setup_s=120.0)))
    turns(sim, controller_of(sim), 20)
    assert {node.status for node in nodes(sim)} == {NodeStatus.REQUESTED}
    phases = [(event.node, event.fields["phase"]) for event in events(sim, "launch_phase")]
    assert phases == [(node.id, phase) for phase in ("provision", "setup") for node in nodes(sim)]
    turns(sim, controller_of(sim), 60)
    assert [node.status for node in nodes(sim)] == [NodeStatus.READY] * 3
    assert len(sim.cloud.machines) == 3


@pytest.mark.parametrize(
    ("habits", "phase", "after_s"),
    [
        (Habits(provision_s=1e6), "provision", 100.0),
        (Habits(provision_s=50.0, setup_s=1e6), "setup", 250.0),
        (Habits(boot_s=1e6), "register", 300.0),
    ],
)
def test_what_is_late_is_named_and_its_pool_blocked(
    ports_of: PortsOf, habits: Habits, phase: str, after_s: float
) -> None:
    sim = Simulation(POLICY, Script(habits=habits))
    controller = Controller(sim.run, ports_of(sim, TIMING))
    turns(sim, controller, int(after_s / 5.0))
    assert not any(node.cause for node in nodes(sim))
    turns(sim, controller, 6)
    late = nodes(sim)[:3]
    assert all(node.cause.startswith(f"late in {phase}: ") for node in late)
    assert all(node.status in {NodeStatus.STOPPING, NodeStatus.GONE} for node in late)
    reasons = sim.store.blocks(sim.run.id, sim.clock.now_s())
    assert {node.offer_id for node in late} <= set(reasons)
    assert all(f"late in {phase}" in reason for reason in reasons.values())
    assert [event.text for event in events(sim, "pool_blocked") if f"late in {phase}" in event.text]


def test_a_deadline_that_passed_while_no_controller_lived_is_kept_by_the_next_one(ports_of: PortsOf) -> None:
    sim = Simulation(POLICY, Script(habits=Habits(provision_s=1e6)))
    turns(sim, Controller(sim.run, ports_of(sim, TIMING)), 2)
    sim.clock.sleep(500.0)
    turns(sim, Controller(sim.run, ports_of(sim, TIMING)), 1)
    assert all(node.cause.startswith("late in provision") for node in nodes(sim)[:3])


def test_a_pool_that_goes_on_refusing_is_left_alone_for_longer_each_time(controller_of: ControllerOf) -> None:
    faults = [Fault(nth, CapacityError("no capacity"), "launch") for nth in range(400)]
    sim = Simulation(POLICY, Script(faults=tuple(faults)))
    turns(sim, controller_of(sim), 400)
    waits: dict[str, list[float]] = {}
    for event in events(sim, "pool_blocked"):
        pool, _, rest = event.text.partition(" for ")
        waits.setdefault(pool, []).append(float(rest.partition(" s:")[0]))
    longest = max(waits.values(), key=len)
    assert len(longest) >= 3
    assert all(later > 1.5 * sooner for sooner, later in pairwise(longest))
