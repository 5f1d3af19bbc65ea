from collections.abc import Callable
from itertools import pairwise

import pytest

from hexcloud.controller.ledger import marks_of
from hexcloud.controller.memory import Mark
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.ledger import CostKind, LedgerEntry
from hexcloud.domain.policy import Policy
from hexcloud.simulator.cloud import Loss, LossKind
from hexcloud.simulator.prices import PriceStep
from hexcloud.simulator.simulation import Script, Simulation
from hexcloud.simulator.world import small_market

ControllerOf = Callable[[Simulation], Controller]


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
