"""A controller lives on a simulated provider; what it recorded must teach what truly happened."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from hexcloud.controller.experience import FRESH_S, Experience, fleet_stays, stays_of
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.event import Event
from hexcloud.domain.fleet import Node, NodeId, NodeStatus, RunId
from hexcloud.domain.offer import OfferId, Tenure
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.policy import Policy
from hexcloud.domain.stay import End
from hexcloud.simulator.capacity import CapacityStep
from hexcloud.simulator.cloud import Loss, LossKind
from hexcloud.simulator.simulation import Script, Simulation
from hexcloud.simulator.store import SimStore
from hexcloud.simulator.world import small_market

ControllerOf = Callable[[Simulation], Controller]
MARKET = small_market()
WANTED = Policy(target_samples_per_s=20.0)


def rented_for_real(sim: Simulation) -> Simulation:
    """Say that the run's machines are no emulation."""
    sim.run = sim.run.model_copy(update={"spec": sim.run.spec.model_copy(update={"provider": "acme"})})
    sim.store.save_run(sim.run)
    return sim


def live(sim: Simulation, controller_of: ControllerOf, turns: int = 80) -> Simulation:
    controller = controller_of(sim)
    for _ in range(turns):
        controller.reconcile_once()
        sim.clock.sleep(5.0)
    return sim


def ends(sim: Simulation) -> list[End | None]:
    return [stay.end for stay in fleet_stays(sim.store)]


def test_a_machine_that_is_taken_away_is_a_loss_of_its_pool(controller_of: ControllerOf) -> None:
    quiet = ends(live(rented_for_real(Simulation(WANTED)), controller_of))
    losses = (Loss(200.0, LossKind.PREEMPT, nth=0),)
    sim = live(rented_for_real(Simulation(WANTED, Script(losses=losses))), controller_of)
    assert End.TAKEN not in quiet
    taken = [stay for stay in fleet_stays(sim.store) if stay.end is End.TAKEN]
    assert len(taken) == 1
    assert taken[0].ready_at_s is not None and taken[0].worked_h > 0
    assert taken[0].until_s - sim.start_s == pytest.approx(200.0, abs=30.0)


def test_a_pool_that_is_sold_out_refused(controller_of: ControllerOf) -> None:
    capacity = tuple(CapacityStep(offer.id, 0.0, 0) for offer in MARKET.offers)
    sim = live(rented_for_real(Simulation(WANTED, Script(capacity=capacity))), controller_of, turns=5)
    refusals = [stay for stay in fleet_stays(sim.store) if stay.end is End.REFUSED]
    assert refusals
    assert all(stay.ready_at_s is None for stay in refusals)


def test_emulated_machines_teach_nothing(controller_of: ControllerOf) -> None:
    assert fleet_stays(live(Simulation(WANTED), controller_of).store) == ()


def test_experience_is_put_on_the_offers_of_the_pools_we_used(controller_of: ControllerOf) -> None:
    sim = live(rented_for_real(Simulation(WANTED)), controller_of)
    used = {node.offer_id for node in sim.store.nodes(sim.run.id)}
    learned = Experience(sim.store, MARKET.calibration, sim.clock.now_s)(MARKET.offers)
    assert [offer.id for offer in learned] == [offer.id for offer in MARKET.offers]
    for before, after in zip(MARKET.offers, learned, strict=True):
        assert (after.startup_s is not None) == (before.id in used)
        assert (after.interruptions_per_hour is not None) == (before.id in used and before.tenure is Tenure.SPOT)


class LongPast(SimStore):
    """A store with so many events that nobody may ask for all of them."""

    def events(self, run_id: RunId, after: int = 0) -> tuple[tuple[int, Event], ...]:
        raise AssertionError("all events of a run were read")


def test_when_a_run_was_last_looked_after_is_read_off_its_last_event_alone(controller_of: ControllerOf) -> None:
    sim = live(rented_for_real(Simulation(WANTED)), controller_of)
    standing = {stay.until_s for stay in fleet_stays(sim.store) if stay.end is None}
    assert standing == {sim.store.events(sim.run.id)[-1][1].at_s}
    past = LongPast()
    past.save_run(sim.run)
    for one in sim.store.nodes(sim.run.id):
        past.save_node(one)
    for _, event in sim.store.events(sim.run.id):
        past.add_event(sim.run.id, event)
    assert fleet_stays(past) == fleet_stays(sim.store)


@dataclass
class Hand:
    at_s: float

    def now_s(self) -> float:
        return self.at_s


def test_the_store_is_read_once_a_minute(controller_of: ControllerOf) -> None:
    sim, clock = rented_for_real(Simulation(WANTED)), Hand(0.0)
    experience = Experience(sim.store, MARKET.calibration, clock.now_s)
    assert experience.stays() == ()
    live(sim, controller_of)
    clock.at_s = FRESH_S - 1
    assert experience.stays() == ()
    clock.at_s = FRESH_S
    assert len(experience.stays()) == len(sim.store.nodes(sim.run.id))


def node(status: NodeStatus, cause: str = "", ready_at_s: float | None = None, gone_at_s: float | None = None) -> Node:
    return Node(
        id=NodeId("r.rollout-0.1"),
        run_id=RunId("r"),
        slot=SlotName("rollout-0"),
        attempt=1,
        role=Role.ROLLOUT,
        offer_id=OfferId("acme/r/a/big/spot"),
        status=status,
        requested_at_s=100.0,
        ready_at_s=ready_at_s,
        gone_at_s=gone_at_s,
        cause=cause,
    )


@pytest.mark.parametrize(
    ("seen", "end", "until_s"),
    [
        (node(NodeStatus.GONE, "sold out: no capacity", gone_at_s=101.0), End.REFUSED, 101.0),
        (
            node(NodeStatus.GONE, "late in register: no word after 900 s", gone_at_s=1000.0),
            End.NEVER_READY,
            1000.0,
        ),
        (node(NodeStatus.GONE, "late in setup: not through after 300 s", gone_at_s=500.0), End.NEVER_READY, 500.0),
        (node(NodeStatus.GONE, "vanished from the provider", gone_at_s=300.0), End.NEVER_READY, 300.0),
        (node(NodeStatus.GONE, "interruption notice: instance-action", 200.0, 300.0), End.TAKEN, 300.0),
        (node(NodeStatus.GONE, "vanished from the provider", 200.0, 300.0), End.TAKEN, 300.0),
        (node(NodeStatus.LOST, "silent for 16 s", 200.0), End.TAKEN, 500.0),
        (node(NodeStatus.GONE, "released", 200.0, 400.0), End.RELEASED, 400.0),
        (node(NodeStatus.GONE, "the run is over", 200.0, 400.0), End.RELEASED, 400.0),
        (node(NodeStatus.STOPPING, "released", 200.0), End.RELEASED, 500.0),
        (node(NodeStatus.READY, "", 200.0), None, 500.0),
        (node(NodeStatus.DRAINING, "released", 200.0), None, 500.0),
        (node(NodeStatus.STARTING), None, 500.0),
    ],
)
def test_each_end_of_a_node_is_told_from_its_record(seen: Node, end: End | None, until_s: float) -> None:
    (stay,) = stays_of([seen], 500.0)
    assert (stay.end, stay.until_s) == (end, until_s)


@pytest.mark.parametrize(
    "seen",
    [
        node(NodeStatus.REQUESTED),
        node(NodeStatus.GONE, "account limit: 8 vCPUs", gone_at_s=101.0),
        node(NodeStatus.GONE, "no longer listed", gone_at_s=101.0),
        node(NodeStatus.GONE, "could not be launched: what?", gone_at_s=101.0),
        node(NodeStatus.GONE, "released before it was ready", gone_at_s=150.0),
    ],
)
def test_what_says_nothing_of_a_pool_is_left_out(seen: Node) -> None:
    assert stays_of([seen], 500.0) == ()
