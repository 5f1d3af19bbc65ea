"""No proof of one question is refuted by the answer to another: the three objectives look at the same plans.

Each question is asked from the market on, as a user asks it: what is chosen on the way may not depend on the question.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from hexcloud.adapters.files import find_model
from hexcloud.adapters.markets.snapshot import SnapshotMarket
from hexcloud.domain.errors import InfeasibleError
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.plan import Allocation
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import MIP_GAP, solve
from hexcloud.planner.columns import build_columns
from hexcloud.planner.problem import Problem
from hexcloud.planner.screen import screen
from hexcloud.planner.search import cheapest
from tests.planner.oracle import EXAMPLES, FEWER, Makers, markets

QUICK = settings(FEWER, phases=(Phase.explicit, Phase.generate))
"""Smaller examples of a failure take longer to find than they save."""
DOZEN = settings(QUICK, max_examples=12)
"""Each asks some thirty questions."""
MANY = settings(QUICK, max_examples=EXAMPLES.max_examples)
HOUR_S = 3600
NOW_S = 1_785_000_000.0
FINE = 2e-6
"""What bisecting over throughputs leaves when gap 0 is asked for, twice."""


@dataclass(frozen=True)
class Shop:
    """Somebody who answers all questions about one market, job and policy."""

    market: Market
    workload: Workload
    policy: Policy
    gap: float = 0.0

    def problem(self, **wishes: object) -> Problem:
        policy = self.policy.model_copy(update=wishes)
        offers = screen(self.market, self.workload, policy, FleetState()).offers
        columns, _ = build_columns(offers, self.market, self.workload, policy)
        return Problem(columns, self.market, self.workload, policy, FleetState())

    def cheapest(self, samples_per_s: float, **wishes: object) -> Allocation | InfeasibleError:
        return answer(self.problem(target_samples_per_s=samples_per_s, **wishes), self.gap)

    def can_make(self, samples_per_s: float, **wishes: object) -> bool:
        """Is there a plan? Nobody has to say why not, which takes longer."""
        return cheapest(self.problem(**wishes), samples_per_s, MIP_GAP) is not None

    def fastest(self, cap: float | None) -> Allocation | InfeasibleError:
        wishes = {"objective": Objective.MAX_THROUGHPUT, "target_samples_per_s": None, "max_usd_per_hour": cap}
        return answer(self.problem(**wishes), self.gap)

    def thriftiest(self, slowest: float) -> Allocation | InfeasibleError:
        wishes = {"objective": Objective.BUDGET_RUN, "target_samples_per_s": slowest}
        return answer(self.problem(**wishes, budget_usd=1e9, run_samples=1e5), self.gap)


def answer(problem: Problem, gap: float) -> Allocation | InfeasibleError:
    try:
        return solve(problem, gap)
    except InfeasibleError as error:
        return error


def check_fastest(shop: Shop, paces: list[float], width: float) -> None:
    """What costs no more than a cap is under the most for that cap, and what is over the most costs more."""
    for pace in paces:
        plan = shop.cheapest(pace)
        if isinstance(plan, InfeasibleError):
            continue
        cap = plan.usd_per_hour - plan.risk_usd_per_hour  # the cap is on what is paid
        most = shop.fastest(cap * (1 + 1e-9))
        assert isinstance(most, Allocation), "a plan at this very price was found"
        assert most.samples_per_s >= pace * (1 - width)
        bound = most.proof.upper_bound_samples_per_s
        assert bound is not None and most.samples_per_s <= bound <= most.samples_per_s * (1 + width)
        assert not shop.can_make(bound * (1 + width), max_usd_per_hour=cap), f"{bound} is called the most for {cap}"
        assert shop.can_make(most.samples_per_s, max_usd_per_hour=cap * (1 + 1e-6))


def check_caps(shop: Shop, caps: list[float | None], width: float) -> None:
    """More money buys no less."""
    found = [shop.fastest(cap) for cap in caps]
    made = [plan.samples_per_s if isinstance(plan, Allocation) else 0.0 for plan in found]
    assert all(more >= less * (1 - width) for less, more in pairwise(made)), made


def check_nearest(shop: Shop, impossible: float) -> None:
    """The nearest feasible ask can be had at its price, and what is a little over it cannot."""
    refused = shop.cheapest(impossible)
    assert isinstance(refused, InfeasibleError)
    nearest, price = refused.nearest_samples_per_s, refused.nearest_usd_per_hour
    if nearest == 0:
        assert not shop.can_make(1e-3)
        return
    plan = shop.cheapest(nearest)
    assert isinstance(plan, Allocation) and price is not None
    assert plan.usd_per_hour == pytest.approx(price, rel=2 * MIP_GAP)
    assert not shop.can_make(nearest * (1 + 2 * MIP_GAP))


def check_thriftiest(shop: Shop, slowest: float, paces: list[float], width: float) -> None:
    """No plan at any throughput from the slowest on makes cheaper samples than the bound says."""
    thrift = shop.thriftiest(slowest)
    plans = [(pace, shop.cheapest(pace)) for pace in (slowest, *paces) if pace >= slowest]
    ratios = [plan.usd_per_hour / pace for pace, plan in plans if isinstance(plan, Allocation)]
    if isinstance(thrift, InfeasibleError):
        assert not ratios
        return
    bound, own = thrift.proof.lower_bound_usd_per_sample, thrift.usd_per_hour / thrift.samples_per_s
    assert bound is not None and thrift.samples_per_s >= slowest * (1 - 1e-6)
    assert min(ratios, default=own) >= bound * 3600 * (1 - 1e-6)
    assert own <= bound * 3600 * (1 + width)


def check_all(shop: Shop, data: st.DataObject) -> None:
    top = shop.fastest(None)
    most = top.samples_per_s if isinstance(top, Allocation) else 1.0
    paces = [most * share for share in data.draw(st.sampled_from([(0.2, 0.7), (0.4, 0.95), (0.6, 0.99)]))]
    check_fastest(shop, paces, FINE)
    check_nearest(shop, most * 3.0)
    caps = [plan.usd_per_hour for pace in paces if isinstance(plan := shop.cheapest(pace), Allocation)]
    check_caps(shop, [*sorted(caps), None], FINE)
    check_thriftiest(replace(shop, gap=1e-3), paces[0], [*paces, most * 0.8], 2e-3)


@given(st.data())
@DOZEN
def test_no_objective_refutes_another(makers: Makers, data: st.DataObject) -> None:
    check_all(Shop(*data.draw(markets(makers))), data)


@given(st.data())
@DOZEN
def test_no_objective_refutes_another_where_replicas_take_several_machines(makers: Makers, data: st.DataObject) -> None:
    check_all(Shop(*data.draw(markets(makers, spans=True))), data)


@pytest.mark.soak
@pytest.mark.timeout(HOUR_S)
@given(st.data())
@MANY
def test_no_objective_refutes_another_in_many_markets(makers: Makers, data: st.DataObject) -> None:
    check_all(Shop(*data.draw(markets(makers))), data)


@pytest.mark.parametrize("name", ["Qwen2.5-1.5B", "Qwen2.5-7B"])
def test_no_objective_refutes_another_on_the_bundled_market(name: str) -> None:
    shop = Shop(SnapshotMarket().market(NOW_S), Workload(model=find_model(name)), Policy(), gap=MIP_GAP)
    caps = [60.0, 225.0, 400.0]
    for cap in caps:
        most = shop.fastest(cap)
        assert isinstance(most, Allocation)
        check_fastest(shop, [most.samples_per_s * share for share in (0.85, 0.98)], 2 * MIP_GAP)
    check_caps(shop, [*caps, None], 2 * MIP_GAP)
    top = shop.fastest(None)
    assert isinstance(top, Allocation)
    check_nearest(shop, top.samples_per_s * 2.5)
    check_thriftiest(shop, 1.0, [top.samples_per_s * share for share in (0.1, 0.2, 0.5, 0.9)], 2 * MIP_GAP)


def check_pruning(makers: Makers, data: st.DataObject, spans: bool = False) -> None:
    """With pool limits and domain rows on; the same search over every column is the rival."""
    shop = Shop(*data.draw(markets(makers, spans)))
    limits = {"survival_share": data.draw(st.sampled_from([0.3, 0.6])), "max_pools": data.draw(st.sampled_from([2, 3]))}
    top = answer(shop.problem(objective=Objective.MAX_THROUGHPUT, target_samples_per_s=None, **limits), 1e-3)
    if isinstance(top, InfeasibleError):
        return
    pace = top.samples_per_s * data.draw(st.sampled_from([0.1, 0.5, 0.9]))
    problem = shop.problem(target_samples_per_s=pace, **limits)
    pruned, whole = answer(problem, 0.0), answer(replace(problem, keeps_all=True), 0.0)
    assert isinstance(pruned, Allocation) and isinstance(whole, Allocation)
    assert pruned.usd_per_hour == pytest.approx(whole.usd_per_hour, rel=1e-6)


@given(st.data())
@QUICK
def test_pruning_loses_no_optimum(makers: Makers, data: st.DataObject) -> None:
    check_pruning(makers, data)


@given(st.data())
@QUICK
def test_pruning_loses_no_optimum_where_replicas_take_several_machines(makers: Makers, data: st.DataObject) -> None:
    check_pruning(makers, data, spans=True)


@pytest.mark.soak
@pytest.mark.timeout(HOUR_S)
@given(st.data())
@MANY
def test_pruning_loses_no_optimum_in_many_markets(makers: Makers, data: st.DataObject) -> None:
    check_pruning(makers, data)
