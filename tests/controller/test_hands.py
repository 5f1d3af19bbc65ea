"""Machines whose end is refused, and nodes that drain."""

from collections.abc import Callable

import pytest

from hexcloud.adapters.provisioners.naming import NODE, own_tags
from hexcloud.controller.hands import END_REFUSED, HARD_REFUSALS, Hands
from hexcloud.controller.journal import Journal
from hexcloud.controller.memory import Memory
from hexcloud.controller.observe import observe
from hexcloud.controller.outside import Ports
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.errors import CredentialsError, NotYetError, ProvisionError, RateLimitError, UnknownProvisionError
from hexcloud.domain.event import Event
from hexcloud.domain.fleet import NodeStatus
from hexcloud.domain.plan import Role
from hexcloud.domain.policy import Policy
from hexcloud.simulator.faults import Fault
from hexcloud.simulator.simulation import Script, Simulation

ControllerOf = Callable[[Simulation], Controller]
POLICY = Policy(target_samples_per_s=20.0)


def refusing(controller_of: ControllerOf, error: ProvisionError, times: int, turns: int = 60) -> Simulation:
    """Stop a run whose provider refuses that many ends."""
    sim = Simulation(POLICY, Script(faults=tuple(Fault(nth, error, "terminate") for nth in range(times))))
    controller = controller_of(sim)
    for turn in range(turns + 60):
        if turn == 60:
            controller.stop("the user said so")
        controller.reconcile_once()
        sim.clock.sleep(5.0)
    return sim


def alarms(sim: Simulation) -> list[Event]:
    return [event for _, event in sim.store.events(sim.run.id) if event.kind == END_REFUSED]


def test_an_end_that_is_refused_is_asked_again(controller_of: ControllerOf) -> None:
    faults = [Fault(nth, RateLimitError("slow down"), "terminate") for nth in range(5)]
    sim = Simulation(POLICY, Script(faults=tuple(faults)), steps=20)
    controller_of(sim).run_until_done()
    assert not sim.cloud.running()
    assert not alarms(sim)


@pytest.mark.parametrize("code", ["500", "403"])
def test_an_end_that_stays_refused_is_told_with_id_price_and_age(controller_of: ControllerOf, code: str) -> None:
    error = UnknownProvisionError(f"the provider answered {code}", code=code)
    sim = refusing(controller_of, error, times=10**6)
    told = alarms(sim)
    stopping = [node for node in sim.store.nodes(sim.run.id) if node.status is NodeStatus.STOPPING]
    assert {event.node for event in told} == {node.id for node in stopping} != set()
    assert len(told) == len(stopping), "once, not at every refusal"
    offer = sim.market.market(sim.clock.now_s()).offer(stopping[0].offer_id)
    assert offer is not None
    event = next(event for event in told if event.node == stopping[0].id)
    assert event.fields["usd_per_hour"] == pytest.approx(offer.usd_per_hour)
    assert f"{offer.usd_per_hour:.2f} USD/h" in event.text and "h old" in event.text and code in event.text
    assert len(sim.cloud.running()) == len(stopping), "a record goes only when the machine has gone"


def test_refusals_are_asked_again_less_and_less_often(controller_of: ControllerOf) -> None:
    sim = refusing(controller_of, UnknownProvisionError("500"), times=10**6, turns=120)
    assert sim.faults.calls["terminate"] / 3 < 20  # of 120 turns of 5 s, with waits of up to a minute


def test_a_machine_that_ends_in_the_end_is_recorded_as_gone(controller_of: ControllerOf) -> None:
    sim = refusing(controller_of, UnknownProvisionError("500"), times=3 * HARD_REFUSALS)
    assert not sim.cloud.running()
    assert all(node.status is NodeStatus.GONE for node in sim.store.nodes(sim.run.id))


def test_patience_that_lasts_too_long_is_told_too(controller_of: ControllerOf) -> None:
    assert not alarms(refusing(controller_of, NotYetError("stopping"), times=12))
    late = alarms(refusing(controller_of, NotYetError("stopping"), times=10**6, turns=90))
    assert late and "stopping" in late[0].text


def test_credentials_that_expired_meanwhile_do_not_hide_what_still_runs(controller_of: ControllerOf) -> None:
    sim = refusing(controller_of, CredentialsError("the token has expired"), times=10**6)
    assert {event.node for event in alarms(sim)} == {machine.id for machine in sim.cloud.running()}
    assert "the token has expired" in alarms(sim)[0].text


def test_an_alarm_names_the_tag_as_the_cloud_spells_it(controller_of: ControllerOf) -> None:
    sim = refusing(controller_of, UnknownProvisionError("500"), times=10**6)
    tags = {own_tags(node)[NODE] for node in sim.store.nodes(sim.run.id)}
    named = {event.text.rpartition(f"{NODE}=")[2] for event in alarms(sim)}
    assert named and named <= tags


def test_nobody_says_that_a_machine_is_still_listed_when_nothing_answers(controller_of: ControllerOf) -> None:
    faults = tuple(Fault(nth, RateLimitError("down"), "list") for nth in range(60, 1000))
    sim = Simulation(POLICY, Script(faults=faults))
    controller = controller_of(sim)
    for turn in range(180):
        if turn == 60:
            controller.stop("the user said so")
        controller.reconcile_once()
        sim.clock.sleep(5.0)
    assert alarms(sim)
    assert all("cannot be asked" in event.text and "still listed" not in event.text for event in alarms(sim))


def test_a_trainer_that_drains_may_end_its_step_first(
    controller_of: ControllerOf, ports_of: Callable[..., Ports]
) -> None:
    sim = Simulation(POLICY)
    controller_of(sim).reconcile_once()
    ports = ports_of(sim)
    seen, memory = observe(sim.run, ports, Memory()), Memory()
    hands = Hands(ports, memory, seen, Journal(sim.store, seen))
    assert seen.accepted is not None
    step_s = seen.accepted[0].forecast.step_s
    for node in seen.nodes:
        ready = node.model_copy(update={"status": NodeStatus.READY})
        memory.drained_at[node.id] = seen.wall_s - ports.timing.drain_s - step_s / 2
        drained = hands.drain(ready, "released")
        in_time = NodeStatus.DRAINING if node.role is Role.TRAINER else NodeStatus.STOPPING
        assert drained.status is in_time
