from collections.abc import Callable
from dataclasses import replace

import pytest

from hexcloud.controller.memory import Memory
from hexcloud.controller.observe import Seen, fleet_state, observe
from hexcloud.controller.outside import EmulationPlan, Ports
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.errors import EngineError, MarketError, RateLimitError
from hexcloud.domain.fleet import Billed, NodeId, NodeStatus
from hexcloud.domain.messages import LinkReport
from hexcloud.domain.policy import Policy
from hexcloud.simulator.faults import Fault
from hexcloud.simulator.simulation import Script, Simulation

ControllerOf = Callable[[Simulation], Controller]
PortsOf = Callable[[Simulation], Ports]


def started(controller_of: ControllerOf) -> Simulation:
    sim = Simulation(Policy(target_samples_per_s=20.0))
    controller = controller_of(sim)
    for _ in range(40):
        controller.reconcile_once()
        sim.clock.sleep(5.0)
    return sim


def test_a_provider_or_coordinator_that_does_not_answer_is_none_not_empty(ports_of: PortsOf) -> None:
    faults = (Fault(0, RateLimitError("slow"), "list"), Fault(0, EngineError("down"), "coordinator"))
    sim = Simulation(Policy(), Script(faults=faults))
    seen = observe(sim.run, ports_of(sim), Memory())
    assert (seen.listed, seen.view, seen.coordinator) == (None, None, None)


def test_a_market_that_fails_leaves_the_last_good_prices(ports_of: PortsOf) -> None:
    sim = Simulation(Policy(), Script(faults=(Fault(1, MarketError("down"), "market"),)))
    memory, ports = Memory(), ports_of(sim)
    first = observe(sim.run, ports, memory).market
    assert observe(sim.run, ports, memory).market is first
    blind = Simulation(Policy(), Script(faults=(Fault(0, MarketError("down"), "market"),)))
    with pytest.raises(MarketError):
        observe(blind.run, ports_of(blind), Memory())


def test_a_draining_node_fills_no_slot_and_no_name_is_given_twice(
    controller_of: ControllerOf, ports_of: PortsOf
) -> None:
    sim = started(controller_of)
    ports = ports_of(sim)
    seen = observe(sim.run, ports, Memory())
    draining = seen.nodes[0].model_copy(update={"status": NodeStatus.DRAINING})
    fleet = fleet_state(replace(seen, nodes=(draining, *seen.nodes[1:])), {}, ports)
    assert draining.id not in {node.id for node in fleet.nodes}
    numbers = [int(node.slot.rpartition("-")[2]) for node in seen.nodes]
    assert fleet.next_slot == max(numbers) + 1


def test_an_emulated_link_is_turned_back_into_the_planned_one(controller_of: ControllerOf, ports_of: PortsOf) -> None:
    sim = started(controller_of)
    weights = sim.run.workload.version_bytes
    ports = replace(ports_of(sim), emulation=EmulationPlan(clock_scale=25.0, local_weight_bytes=weights / 1000))
    seen = with_link(observe(sim.run, ports, Memory()), gb_per_s=0.025, latency_ms=0.4)
    [link] = fleet_state(seen, {}, ports).links
    assert link.gb_per_s == pytest.approx(1.0), "25 times as fast, with weights a thousandth in size"
    assert link.latency_ms == pytest.approx(10.0)


def test_another_head_knows_nobody_even_in_the_same_epoch(controller_of: ControllerOf, ports_of: PortsOf) -> None:
    sim = started(controller_of)
    ports, memory = ports_of(sim), Memory()
    seen = observe(sim.run, ports, memory)
    memory.admitted.update(node.id for node in seen.nodes)
    observe(sim.run, ports, memory)
    assert memory.admitted, "the same coordinator keeps whom it admitted"
    sim.cloud.training.head = NodeId("another")
    observe(sim.run, ports, memory)
    assert memory.admitted == set()


def with_link(seen: Seen, gb_per_s: float, latency_ms: float) -> Seen:
    assert seen.view is not None
    one, other, *rest = seen.view.nodes
    report = LinkReport(node_id=one.node_id, target="10.0.0.2:7000", gb_per_s=gb_per_s, latency_ms=latency_ms)
    other = other.model_copy(update={"address": "10.0.0.2:7000"})
    return replace(seen, view=seen.view.model_copy(update={"nodes": (one, other, *rest), "links": (report,)}))


class Telling:
    """A provisioner that tells of bills."""

    def __init__(self, sim: Simulation) -> None:
        self.launch, self.terminate = sim.provisioner.launch, sim.provisioner.terminate
        self.list_nodes, self.is_elastic = sim.provisioner.list_nodes, sim.provisioner.is_elastic

    def billed(self) -> tuple[Billed, ...]:
        return (Billed(node_id=NodeId("one"), from_s=1.0),)


def test_bills_are_known_where_the_provider_tells_of_them_and_answered(ports_of: PortsOf) -> None:
    sim = Simulation(Policy(), Script(faults=(Fault(1, RateLimitError("slow"), "list"),)))
    ports = ports_of(sim)
    telling = replace(ports, provisioner=Telling(sim))
    assert observe(sim.run, telling, Memory()).billed == Telling(sim).billed()
    assert observe(sim.run, telling, Memory()).billed == (), "no list, no bills"
    assert observe(sim.run, ports, Memory()).billed == ()
