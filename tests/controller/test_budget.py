from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.controller.budget import Purse, least_usd, require_budget
from hexcloud.controller.memory import Memory
from hexcloud.controller.observe import Seen, observe
from hexcloud.controller.outside import Ports, Timing
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.errors import BudgetError
from hexcloud.domain.policy import Policy
from hexcloud.simulator.simulation import Simulation

TIMING = Timing(poll_s=5.0, spend_lease_s=300.0, self_end_s=200.0)
BUDGET_USD = 100.0


@pytest.fixture(scope="module")
def seen(controller_of: Callable[[Simulation], Controller], ports_of: Callable[[Simulation], Ports]) -> Seen:
    """A fleet of three that has been ready for a while."""
    sim = Simulation(Policy(target_samples_per_s=20.0, budget_usd=BUDGET_USD))
    controller = controller_of(sim)
    for _ in range(40):
        controller.reconcile_once()
        sim.clock.sleep(5.0)
    return observe(sim.run, ports_of(sim), Memory())


def ceiling_usd_per_hour(seen: Seen) -> float:
    return sum(seen.prices.ceiling(node.offer_id, node.disk_gib) for node in seen.standing())


@given(spent=st.floats(0, BUDGET_USD))
def test_a_fleet_left_alone_until_its_lease_ends_stays_under_the_cap(seen: Seen, spent: float) -> None:
    purse = Purse(seen, TIMING, spent)
    exit_s = TIMING.self_end_s + TIMING.teardown_s
    hours = (purse.lease_end_wall_s(seen.standing()) + exit_s - seen.wall_s) / 3600
    if hours * 3600 > exit_s:
        assert spent + ceiling_usd_per_hour(seen) * hours <= BUDGET_USD


def test_the_lease_is_whole_while_there_is_money(seen: Seen) -> None:
    assert Purse(seen, TIMING, 0.0).lease_end_wall_s(seen.standing()) == seen.wall_s + TIMING.spend_lease_s
    no_cap = seen.run.model_copy(update={"policy": Policy(target_samples_per_s=20.0)})
    purse = Purse(replace(seen, run=no_cap), TIMING, 1e9)
    assert purse.lease_end_wall_s(seen.standing()) == seen.wall_s + TIMING.spend_lease_s
    assert not purse.must_stop(seen.standing())


@given(spent=st.floats(0, BUDGET_USD))
def test_it_stops_while_a_checkpoint_and_the_teardown_can_still_be_paid(seen: Seen, spent: float) -> None:
    purse = Purse(seen, TIMING, spent)
    reserve_h = (TIMING.poll_s + TIMING.checkpoint_s + TIMING.self_end_s + TIMING.teardown_s) / 3600
    if spent + ceiling_usd_per_hour(seen) * reserve_h >= BUDGET_USD:
        assert purse.must_stop(seen.standing())
    if purse.must_end(seen.standing()):
        assert purse.must_stop(seen.standing())


@given(spent=st.floats(0, BUDGET_USD))
def test_a_machine_is_refused_when_all_of_them_left_alone_would_break_the_cap(seen: Seen, spent: float) -> None:
    nodes = seen.standing()
    alone_h = (TIMING.spend_lease_s + TIMING.self_end_s + TIMING.teardown_s) / 3600
    start_h = seen.market.calibration.startup_s / 3600
    new = seen.prices.ceiling(nodes[0].offer_id, nodes[0].disk_gib)
    worst = spent + ceiling_usd_per_hour(seen) * alone_h + new * (start_h + alone_h)
    if worst > BUDGET_USD:
        assert not Purse(seen, TIMING, spent).can_launch(nodes, nodes[0].offer_id, nodes[0].role)


@given(spent=st.floats(0, BUDGET_USD))
def test_money_never_cuts_the_lease_before_the_run_was_told_to_checkpoint(seen: Seen, spent: float) -> None:
    purse = Purse(seen, TIMING, spent)
    if not purse.must_stop(seen.standing()):
        assert purse.lease_end_wall_s(seen.standing()) >= seen.wall_s + min(TIMING.checkpoint_s, TIMING.spend_lease_s)


def test_plenty_of_money_allows_a_machine(seen: Seen) -> None:
    assert Purse(seen, TIMING, 0.0).can_launch(seen.standing(), seen.nodes[0].offer_id, seen.nodes[0].role)


def slow_to_start(seen: Seen, startup_s: float) -> Seen:
    """The same moment after our fleet has learned that every pool takes that long to start."""
    offers = tuple(offer.model_copy(update={"startup_s": startup_s}) for offer in seen.market.offers)
    return replace(seen, market=seen.market.model_copy(update={"offers": offers}))


def test_what_pools_have_taught_of_their_start_counts_under_the_cap(seen: Seen) -> None:
    assert seen.accepted is not None
    slow, prior_s = slow_to_start(seen, 9000.0), seen.market.calibration.startup_s
    nodes, hourly = seen.standing(), ceiling_usd_per_hour(seen)
    new = seen.prices.ceiling(nodes[0].offer_id, nodes[0].disk_gib)
    spent = next(
        spent
        for spent in range(int(BUDGET_USD), 0, -1)
        if Purse(seen, TIMING, spent).can_launch(nodes, nodes[0].offer_id, nodes[0].role)
    )
    assert new * (9000.0 - prior_s) / 3600 > 1.0
    assert not Purse(slow, TIMING, spent).can_launch(nodes, nodes[0].offer_id, nodes[0].role)
    starting = [node.model_copy(update={"ready_at_s": None, "requested_at_s": seen.now_s}) for node in nodes]
    left_s = [Purse(one, TIMING, BUDGET_USD - hourly).lease_end_wall_s(starting) - seen.wall_s for one in (seen, slow)]
    assert left_s == [TIMING.spend_lease_s, 0.0], "an hour's money does not even pay for a start of two and a half"
    plan = seen.accepted[0]
    more = least_usd(plan, slow.market, seen.run, TIMING) - least_usd(plan, seen.market, seen.run, TIMING)
    assert more == pytest.approx(hourly * (9000.0 - prior_s) / 3600)


def test_the_least_sensible_run_is_named(seen: Seen) -> None:
    assert seen.accepted is not None
    plan = seen.accepted[0]
    least = least_usd(plan, seen.market, seen.run, TIMING)
    poor = seen.run.policy.model_copy(update={"budget_usd": least * 0.99})
    with pytest.raises(BudgetError, match="buys nothing useful"):
        require_budget(plan, seen.market, seen.run.model_copy(update={"policy": poor}), TIMING)
    enough = seen.run.policy.model_copy(update={"budget_usd": least})
    require_budget(plan, seen.market, seen.run.model_copy(update={"policy": enough}), TIMING)
