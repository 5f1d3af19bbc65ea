"""A gang whose links are measured far under their forecast."""

from collections.abc import Callable

import pytest

from hexcloud.controller.outside import Ports, Timing
from hexcloud.controller.reconcile import Controller
from hexcloud.controller.slow_gang import LEAST_SHARE, MAX_SLOW_GANGS, SLOW, slowest
from hexcloud.domain.fleet import MeasuredLink, Node, NodeStatus
from hexcloud.domain.messages import LinkReport
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.policy import Policy
from hexcloud.simulator.simulation import Simulation

PortsOf = Callable[..., Ports]
FORECAST = 12.5
"""GB/s inside a zone of the small market."""


def link(gb_per_s: float) -> MeasuredLink:
    return MeasuredLink(source=SlotName("trainer-2"), target=SlotName("trainer-3"), gb_per_s=gb_per_s, latency_ms=0.1)


def test_only_what_is_under_the_least_share_of_the_forecast_is_slow() -> None:
    assert slowest([link(LEAST_SHARE * FORECAST)], FORECAST) is None
    slow = slowest([link(12.0), link(8.0), link(0.0)], FORECAST)
    assert slow == (link(0.0), 0.0), "a pair that cannot reach each other is the slowest of all"


def live(ports_of: PortsOf, gb_per_s: float, count: int = 300) -> Simulation:
    """Live with a network that makes this much between the members of every gang."""
    sim = Simulation(Policy(target_samples_per_s=40.0))
    sim.cloud.gang_gb_per_s = gb_per_s
    ports = ports_of(sim, Timing(poll_s=5.0, spend_lease_s=600.0, drain_s=30.0))
    controller = Controller(sim.run, ports)
    for _ in range(count):
        controller.reconcile_once()
        sim.clock.sleep(5.0)
    return sim


def trainers(sim: Simulation) -> list[Node]:
    return [node for node in sim.store.nodes(sim.run.id) if node.role is Role.TRAINER]


def test_a_gang_with_good_links_stays(ports_of: PortsOf) -> None:
    sim = live(ports_of, 0.9 * FORECAST, count=60)
    assert [node.status for node in trainers(sim)] == [NodeStatus.READY] * 2


def test_a_slow_gang_is_given_back_whole_and_its_pool_blocked(ports_of: PortsOf) -> None:
    sim = live(ports_of, 0.5 * FORECAST, count=60)
    gang = trainers(sim)[:2]
    assert all(node.cause.startswith(SLOW) and "50% of the forecast" in node.cause for node in gang)
    assert all(not sim.cloud.machines[node.id].exists for node in gang)
    assert any(SLOW in reason for reason in sim.store.blocks(sim.run.id, sim.clock.now_s()).values())


def test_when_every_gang_is_slow_the_forecast_is_wrong_and_the_third_stays(ports_of: PortsOf) -> None:
    sim = live(ports_of, 0.5 * FORECAST)
    slow = [node for node in trainers(sim) if node.rank == 0 and node.cause.startswith(SLOW)]
    assert len(slow) <= MAX_SLOW_GANGS
    assert [node.status for node in trainers(sim)[-1:]] == [NodeStatus.READY]


def test_who_joined_a_gang_at_work_is_not_judged_by_links_that_training_fills(ports_of: PortsOf) -> None:
    sim = live(ports_of, FORECAST, count=40)
    _, member = trainers(sim)
    sim.store.save_node(member.model_copy(update={"gang": 1}))
    sim.cloud.gang_gb_per_s = 0.1 * FORECAST
    controller = Controller(sim.run, ports_of(sim))  # it has judged no link yet
    controller.reconcile_once()
    assert [node.status for node in trainers(sim)] == [NodeStatus.READY] * 2
    sim.store.save_node(member)
    Controller(sim.run, ports_of(sim)).reconcile_once()
    assert all(node.cause.startswith(SLOW) for node in trainers(sim)), "those who began together are"


@pytest.mark.parametrize("both", [True, False])
def test_a_pair_is_cut_off_only_when_neither_can_reach_the_other(ports_of: PortsOf, both: bool) -> None:
    from dataclasses import replace

    from hexcloud.controller.memory import Memory
    from hexcloud.controller.observe import measured_links, observe

    sim = live(ports_of, FORECAST, count=40)
    ports = ports_of(sim)
    seen = observe(sim.run, ports, Memory())
    assert seen.view is not None
    one, other = (node for node in seen.view.nodes if node.role is Role.TRAINER)
    reports = [LinkReport(node_id=one.node_id, target=other.address, gb_per_s=0.0, latency_ms=0.0)]
    if not both:
        reports.append(LinkReport(node_id=other.node_id, target=one.address, gb_per_s=1.0, latency_ms=0.0))
    seen = replace(seen, view=seen.view.model_copy(update={"links": tuple(reports)}))
    speeds = [link.gb_per_s for link in measured_links(seen, ports)]
    assert speeds == [0.0] if both else [pytest.approx(1.0)]
