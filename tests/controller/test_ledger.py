from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.controller.ledger import marks_of, settle
from hexcloud.controller.memory import Mark, Memory
from hexcloud.controller.observe import Seen, observe
from hexcloud.controller.outside import Ports, Timing
from hexcloud.controller.prices import Prices
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.fleet import Billed, FleetState, NodeId, NodeStatus
from hexcloud.domain.ledger import CostKind, LedgerEntry
from hexcloud.domain.market import EgressPrice, LinkScope
from hexcloud.domain.offer import offer_id
from hexcloud.domain.plan import Columns, Role, Slot, SlotName
from hexcloud.domain.policy import Policy
from hexcloud.estimate.transfer import egress_usd_per_gb
from hexcloud.planner.problem import Problem
from hexcloud.planner.worth import Worth
from hexcloud.simulator.cloud import Loss, LossKind
from hexcloud.simulator.faults import Faults
from hexcloud.simulator.prices import PriceStep
from hexcloud.simulator.simulation import Script, Simulation
from hexcloud.simulator.store import SimStore
from hexcloud.simulator.world import small_market

ControllerOf = Callable[[Simulation], Controller]
PortsOf = Callable[[Simulation], Ports]


def entry(node: str, kind: CostKind, from_s: float, to_s: float, usd_per_hour: float) -> LedgerEntry:
    usd = usd_per_hour * (to_s - from_s) / 3600
    return LedgerEntry(node_id=NodeId(node), kind=kind, from_s=from_s, to_s=to_s, usd_per_hour=usd_per_hour, usd=usd)


def test_a_mark_is_the_latest_end_of_a_nodes_bills_of_one_kind() -> None:
    entries = (
        entry("a", CostKind.COMPUTE, 0, 10, 1.0),
        entry("a", CostKind.COMPUTE, 10, 20, 2.0),
        entry("a", CostKind.DISK, 0, 20, 0.1),
    )
    assert marks_of(entries) == {
        (NodeId("a"), CostKind.COMPUTE): Mark(20, 2.0),
        (NodeId("a"), CostKind.DISK): Mark(20, 0.1),
    }


def lived(controller_of: ControllerOf, restart_every: int = 10**9) -> Simulation:
    sim = Simulation(Policy(target_samples_per_s=20.0), Script(losses=(Loss(203.0, LossKind.PREEMPT),)), steps=40)
    controller = controller_of(sim)
    for turn in range(200):
        if turn % restart_every == restart_every - 1:
            controller = controller_of(sim)
        controller.reconcile_once()
        sim.clock.sleep(5.0)
    return sim


@pytest.mark.parametrize("restart_every", [10**9, 7])
def test_bills_of_a_node_and_kind_never_overlap_and_leave_no_gap(
    controller_of: ControllerOf, restart_every: int
) -> None:
    sim = lived(controller_of, restart_every)
    by_line: dict[tuple[NodeId, CostKind], list[LedgerEntry]] = {}
    for line in sim.store.ledger(sim.run.id):
        by_line.setdefault((line.node_id, line.kind), []).append(line)
    assert {kind for _, kind in by_line} == set(CostKind)
    for (_, kind), lines in by_line.items():
        for before, after in pairwise(lines):
            assert before.to_s == after.from_s or (kind is CostKind.EGRESS and before.to_s <= after.from_s)


def test_every_published_version_is_billed_once_per_foreign_region(controller_of: ControllerOf) -> None:
    sim = lived(controller_of)
    plan = sim.store.plan(sim.run.id)
    assert plan is not None
    egress = [line for line in sim.store.ledger(sim.run.id) if line.kind is CostKind.EGRESS]
    per_version = plan[0].allocation.egress_usd_per_hour * plan[0].forecast.step_s / 3600
    assert per_version > 0
    assert sum(line.usd for line in egress) == pytest.approx(40 * per_version, rel=0.35)


def test_the_ledger_says_what_the_clouds_billed(controller_of: ControllerOf) -> None:
    sim = lived(controller_of)
    rent = sum(line.usd for line in sim.store.ledger(sim.run.id) if line.kind is CostKind.COMPUTE)
    assert sim.billed_usd() <= rent <= 1.03 * sim.billed_usd()


def test_a_span_in_which_the_price_moved_costs_the_dearer_of_both_prices(controller_of: ControllerOf) -> None:
    prices = tuple(
        PriceStep(offer.id, at_s, offer.usd_per_hour * factor)
        for offer in small_market().offers
        for at_s, factor in ((202.5, 1.05), (252.5, 1.0))
    )
    sim = Simulation(Policy(target_samples_per_s=20.0), Script(prices=prices))
    controller = controller_of(sim)
    for _ in range(60):
        controller.reconcile_once()
        sim.clock.sleep(5.0)
    node = sim.store.nodes(sim.run.id)[0]
    listed = sim.market.price(node.offer_id, sim.start_s)
    lines = [line for line in sim.store.ledger(sim.run.id) if (line.node_id, line.kind) == (node.id, CostKind.COMPUTE)]
    dear = [line.from_s - sim.start_s for line in lines if line.usd_per_hour > listed * 1.01]
    assert (min(dear), max(dear)) == (200.0, 250.0)


@pytest.mark.parametrize(("learned_s", "start_s"), [(None, 120.0), (900.0, 900.0)])
def test_a_machine_that_vanished_while_it_started_is_billed_as_long_as_its_pool_takes_to_start(
    controller_of: ControllerOf, ports_of: PortsOf, learned_s: float | None, start_s: float
) -> None:
    sim = Simulation(Policy(target_samples_per_s=20.0))
    controller_of(sim).reconcile_once()
    seen = observe(sim.run, ports_of(sim), Memory())
    assert seen.market.calibration.startup_s == 120.0
    offers = tuple(offer.model_copy(update={"startup_s": learned_s}) for offer in seen.market.offers)
    starting = seen.nodes[0].model_copy(update={"status": NodeStatus.STARTING, "ready_at_s": None})
    later = replace(
        seen,
        market=seen.market.model_copy(update={"offers": offers}),
        nodes=(starting,),
        listed=frozenset(),
        now_s=seen.now_s + 1e5,
    )
    store, timing = SimStore(Faults()), Timing(self_end_s=40.0)
    settle(later, store, Memory(), timing)
    (rent,) = [line for line in store.ledger(seen.run.id) if line.kind is CostKind.COMPUTE]
    assert rent.to_s - rent.from_s == start_s + timing.spend_lease_s + 40.0 + timing.teardown_s


def rent_of(
    seen: Seen, turns: list[tuple[float, set[NodeId], tuple[Billed, ...]]], status: NodeStatus
) -> list[LedgerEntry]:
    """Return the rent of the first node after some turns: the moment, who is listed, and what the cloud billed."""
    store, memory = SimStore(Faults()), Memory()
    node = seen.nodes[0].model_copy(update={"status": status, "requested_at_s": 0.0})
    run = seen.run.model_copy(update={"clock_origin_run_s": 0.0, "clock_origin_wall_s": 0.0, "clock_scale": 1.0})
    for now_s, listed, billed in turns:
        now = replace(seen, run=run, nodes=(node,), now_s=now_s, listed=frozenset(listed), billed=billed, view=None)
        settle(now, store, memory, Timing())
    return [line for line in store.ledger(seen.run.id) if line.kind is CostKind.COMPUTE]


@pytest.fixture(scope="module")
def seen(controller_of: ControllerOf, ports_of: PortsOf) -> Seen:
    sim = Simulation(Policy(target_samples_per_s=20.0))
    controller_of(sim).reconcile_once()
    return observe(sim.run, ports_of(sim), Memory())


@given(
    began_s=st.floats(0.0, 500.0),
    lives_s=st.floats(1.0, 500.0),
    later_s=st.floats(0.0, 100.0),
    looks=st.lists(st.floats(1.0, 1000.0), max_size=6, unique=True),
)
def test_where_the_cloud_says_when_a_bill_began_and_ended_that_is_billed(
    seen: Seen, began_s: float, lives_s: float, later_s: float, looks: list[float]
) -> None:
    """A machine of a first try that was given up is billed, too; however late and seldom anybody looked."""
    name, ended_s = seen.nodes[0].id, began_s + lives_s
    tries = [(began_s, ended_s), (ended_s + later_s, ended_s + later_s + lives_s)]

    def told(at_s: float) -> tuple[Billed, ...]:
        begun = [(from_s, to_s) for from_s, to_s in tries if from_s <= at_s]
        return tuple(Billed(node_id=name, from_s=start, to_s=end if end <= at_s else None) for start, end in begun)

    turns = [(at_s, {name} if any(bill.to_s is None for bill in told(at_s)) else set(), told(at_s)) for at_s in looks]
    lines = rent_of(
        seen, [*sorted(turns, key=lambda turn: turn[0]), (3000.0, set(), told(3000.0))], NodeStatus.REQUESTED
    )
    assert sum(line.to_s - line.from_s for line in lines) == pytest.approx(2 * lives_s)
    assert all(sooner.to_s <= later.from_s for sooner, later in pairwise(lines))


def test_a_machine_that_ended_before_anybody_saw_it_is_billed_when_the_cloud_tells_of_it(seen: Seen) -> None:
    bill = Billed(node_id=seen.nodes[0].id, from_s=10.0, to_s=40.0)
    (line,) = rent_of(seen, [(100.0, set(), (bill,)), (200.0, set(), (bill,))], NodeStatus.GONE)
    assert (line.from_s, line.to_s) == (10.0, 40.0)


def test_an_end_at_an_unknown_moment_is_when_it_was_noticed(seen: Seen) -> None:
    name = seen.nodes[0].id
    bill = Billed(node_id=name, from_s=50.0)
    lines = rent_of(seen, [(90.0, {name}, (bill,)), (95.0, set(), (bill,))], NodeStatus.READY)
    assert (lines[0].from_s, lines[-1].to_s) == (50.0, 95.0)


def test_what_the_cloud_says_nothing_of_is_billed_from_the_request_on(seen: Seen) -> None:
    (line,) = rent_of(seen, [(90.0, {seen.nodes[0].id}, ())], NodeStatus.STARTING)
    assert (line.from_s, line.to_s) == (0.0, 90.0)


def per_version_usd(seen: Seen) -> float:
    """Return what the ledger says that one version cost on its way."""
    assert seen.view is not None
    store = SimStore(Faults())
    view = seen.view.model_copy(update={"version": 10})
    settle(replace(seen, view=view), store, Memory(), Timing())
    return sum(line.usd for line in store.ledger(seen.run.id) if line.kind is CostKind.EGRESS) / 10


@pytest.mark.parametrize(
    "places",
    [
        [("aws", "us-east-1", "a")],
        [("aws", "us-east-1", "b"), ("aws", "us-east-1", "c"), ("aws", "us-east-1", "c")],
        [("aws", "us-west-2", "a"), ("aws", "us-west-2", "b"), ("aws", "eu-west-1", "a")],
        [("gcp", "us-central1", "b"), ("gcp", "us-central1", "a"), ("lambda", "us-west-1", None)],
    ],
)
def test_a_versions_way_costs_what_the_planner_says_also_when_nothing_is_listed_any_more(
    controller_of: ControllerOf, ports_of: PortsOf, places: list[tuple[str, str, str | None]]
) -> None:
    """The trainer stands in aws/us-east-1/a; zones of one region are not free either."""
    sim = Simulation(Policy(target_samples_per_s=20.0))
    controller = controller_of(sim)
    for _ in range(40):
        controller.reconcile_once()
        sim.clock.sleep(5.0)
    seen = observe(sim.run, ports_of(sim), Memory())
    assert seen.accepted is not None
    plan = seen.accepted[0]
    head, rollout = plan.placement.role(Role.TRAINER)[0], plan.placement.role(Role.ROLLOUT)[0]
    assert rollout.rollout is not None
    seen, slots = with_rollout_at(places, seen, head, rollout)
    columns = Columns(
        rollout=tuple(slot.rollout for slot in slots if slot.rollout),
        trainer=tuple(slot.trainer for slot in slots if slot.trainer),
    )
    pace = float(seen.run.workload.samples_per_step)  # one version a second
    problem = Problem(columns, seen.market, seen.run.workload, seen.run.policy, FleetState())
    rent = sum(slot.usd_per_hour for slot in slots)
    planned = (Worth(problem, pace).bill_usd_per_hour(slots) - rent) / 3600
    assert per_version_usd(seen) == pytest.approx(planned, abs=1e-9)
    unlisted = replace(seen, market=seen.market.model_copy(update={"offers": ()}))
    assert per_version_usd(unlisted) == pytest.approx(planned, abs=1e-9)


def with_rollout_at(
    places: list[tuple[str, str, str | None]], seen: Seen, head: Slot, rollout: Slot
) -> tuple[Seen, tuple[Slot, ...]]:
    """Return the run with its rollout machines at these places, and its slots; zones cost 0.01 USD/GB."""
    assert rollout.rollout is not None
    like = next(offer for offer in seen.market.offers if offer.id == rollout.offer_id)
    node = next(node for node in seen.nodes if node.slot == rollout.name)
    offers, nodes, slots = {offer.id: offer for offer in seen.market.offers}, [], [head]
    for number, (cloud, region, zone) in enumerate(places):
        key = offer_id(cloud, region, zone, like.instance_type, like.tenure)
        where = {"id": key, "cloud": cloud, "region": region, "zone": zone, "usd_per_hour": like.usd_per_hour}
        offers[key] = like.model_copy(update=where)
        name = SlotName(f"rollout-{90 + number}")
        column = rollout.rollout.model_copy(update={"offer_id": key})
        slots.append(rollout.model_copy(update={"name": name, "offer_id": key, "rollout": column}))
        nodes.append(node.model_copy(update={"id": NodeId(name), "slot": name, "offer_id": key}))
    between = tuple(
        EgressPrice(cloud=cloud, scope=LinkScope.REGION, usd_per_gb=0.01, source="-") for cloud in ("aws", "gcp")
    )
    network = seen.market.network.model_copy(update={"egress": (*seen.market.network.egress, *between)})
    market = seen.market.model_copy(update={"offers": tuple(offers.values()), "network": network})
    prices = Prices(market, {offer.id: offer.usd_per_hour for offer in market.offers})
    heads = tuple(node for node in seen.nodes if node.role is Role.TRAINER)
    return replace(seen, market=market, prices=prices, nodes=(*heads, *nodes)), tuple(slots)


def test_real_machines_are_billed_the_bytes_that_were_sent_to_them_and_to_their_stores(
    controller_of: ControllerOf, ports_of: PortsOf
) -> None:
    sim = Simulation(Policy(target_samples_per_s=20.0))
    controller = controller_of(sim)
    for _ in range(40):
        controller.reconcile_once()
        sim.clock.sleep(5.0)
    seen = observe(sim.run, ports_of(sim), Memory())
    assert seen.accepted is not None and seen.view is not None
    placement = seen.accepted[0].placement
    known = seen.view
    at = [
        ("aws", "us-east-1", "a"),
        ("aws", "us-east-1", "b"),
        ("aws", "us-west-2", "a"),
    ]  # the head is where the first is
    seen, _ = with_rollout_at(list(at), seen, placement.role(Role.TRAINER)[0], placement.role(Role.ROLLOUT)[0])
    spec = seen.run.spec.model_copy(update={"provider": "skypilot"})
    seen = replace(seen, run=seen.run.model_copy(update={"spec": spec}))
    first = next(node.offer_id for node in seen.nodes if node.id == "rollout-90")
    nodes = [node.model_copy(update={"offer_id": first}) if node.role is Role.TRAINER else node for node in seen.nodes]
    seen = replace(seen, nodes=tuple(nodes))
    network = seen.market.network
    # A node in another zone, one in another region, and that one's store; to a store in the own region it is free.
    scopes = (LinkScope.REGION, LinkScope.CONTINENT, LinkScope.CONTINENT)
    usd_per_gb = sum(egress_usd_per_gb(network, "aws", scope) for scope in scopes)
    store, memory = SimStore(Faults()), Memory()
    for turn, (head, sent_gb, due_gb) in enumerate(
        [("h1", 1, 1), ("h1", 1, 1), ("h1", 3, 3), ("h2", 2, 5), ("h2", 1, 6), ("h2", 1, 6)]
    ):
        sent = {NodeId(f"rollout-{90 + number}"): sent_gb * 10**9 for number in range(3)}
        stored = {f"aws/us-{side}": sent_gb * 10**9 for side in ("east-1", "west-2")}
        told = {"head": NodeId(head), "sent_bytes": sent, "stored_bytes": stored, "version": 10 * turn}
        view = known.model_copy(update=told)
        settle(replace(seen, view=view, now_s=seen.now_s + turn), store, memory, Timing())
        billed = sum(line.usd for line in store.ledger(seen.run.id) if line.kind is CostKind.EGRESS)
        assert billed == pytest.approx(due_gb * usd_per_gb), f"turn {turn}"
