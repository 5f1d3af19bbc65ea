from collections.abc import Callable

import pytest

from hexcloud.controller.reconcile import Controller
from hexcloud.domain.errors import NotYetError, ProvisionError, QuotaError, RateLimitError, UnknownProvisionError
from hexcloud.domain.fleet import NodeStatus
from hexcloud.domain.policy import Policy
from hexcloud.simulator.faults import Fault
from hexcloud.simulator.simulation import Script, Simulation

ControllerOf = Callable[[Simulation], Controller]


def started(controller_of: ControllerOf, *faults: Fault, turns: int = 60) -> Simulation:
    sim = Simulation(Policy(target_samples_per_s=20.0), Script(faults=faults))
    controller = controller_of(sim)
    for _ in range(turns):
        controller.reconcile_once()
        sim.clock.sleep(5.0)
    return sim


def kinds(sim: Simulation) -> list[str]:
    return [event.kind for _, event in sim.store.events(sim.run.id)]


@pytest.mark.parametrize("error", [RateLimitError("slow down"), NotYetError("starting")])
def test_a_provider_that_asks_for_patience_gets_the_same_node_asked_again(
    controller_of: ControllerOf, error: ProvisionError
) -> None:
    sim = started(controller_of, Fault(0, error, "launch"), Fault(3, error, "launch"))
    assert len(sim.store.nodes(sim.run.id)) == len(sim.cloud.running()) == 3
    assert "pool_blocked" not in kinds(sim)


def test_an_unknown_error_is_tried_three_times_and_then_another_offer_is_bought(controller_of: ControllerOf) -> None:
    # The first node is asked for at the calls 0, 3 and 4: the other two succeed at once.
    sim = started(controller_of, *(Fault(nth, UnknownProvisionError("?"), "launch") for nth in (0, 3, 4)))
    first = sim.store.nodes(sim.run.id)[0]
    assert first.status is NodeStatus.GONE
    assert kinds(sim).count("launch_failed") == 3
    assert len(sim.cloud.running()) == 3
    assert all(machine.offer.id != first.offer_id for machine in sim.cloud.running())


def test_a_machine_that_an_error_hid_is_found_and_not_rented_again(controller_of: ControllerOf) -> None:
    sim = started(controller_of, Fault(0, UnknownProvisionError("timeout"), "launch", after=True))
    assert len(sim.cloud.machines) == 3
    assert all(node.status is NodeStatus.READY for node in sim.store.nodes(sim.run.id))


def test_a_quota_blocks_every_pool_of_the_family_in_that_region(controller_of: ControllerOf) -> None:
    sim = started(controller_of, Fault(0, QuotaError("limit is 0"), "launch"), turns=1)
    refused = sim.store.nodes(sim.run.id)[0].offer_id
    blocked = sim.store.blocks(sim.run.id, sim.clock.now_s() - 5.0)
    assert refused in blocked
    assert all(offer.split("/")[:2] == refused.split("/")[:2] for offer in blocked)


def test_an_end_that_is_refused_is_asked_again(controller_of: ControllerOf) -> None:
    faults = [Fault(nth, RateLimitError("slow down"), "terminate") for nth in range(5)]
    sim = Simulation(Policy(target_samples_per_s=20.0), Script(faults=tuple(faults)), steps=20)
    controller_of(sim).run_until_done()
    assert not sim.cloud.running()
