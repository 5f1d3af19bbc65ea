from hexcloud.domain.market import Market
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.binding import binding_rules
from hexcloud.planner.problem import Problem
from hexcloud.planner.search import cheapest
from tests.planner.solving import MakeMarket, MakeOffer, problem_of


def binding(problem: Problem, samples_per_s: float) -> tuple[str, ...]:
    found = cheapest(problem, samples_per_s, 0.0)
    assert found is not None
    return binding_rules(found, problem)


def test_a_plan_whose_smallest_machine_is_needed_is_held_by_the_rollout_rate(
    market: Market, workload: Workload, policy: Policy
) -> None:
    assert "rollout_rate" in binding(problem_of(market, workload, policy), 20_000 / 2048)


def test_a_cheaper_gang_that_is_too_slow_means_the_train_rate_holds(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    market = make_market(make_offer("big8", 24.0), make_offer("lean8", 12.0))
    problem = problem_of(market, workload, policy)
    cheap = max(gang.samples_per_s for gang in problem.gangs if "lean8" in gang.offer_id and gang.nodes == 1)
    assert "train_rate" in binding(problem, cheap * 1.2)
    assert "train_rate" not in binding(problem, cheap * 0.5)


def test_stock_that_is_all_taken_and_a_cap_that_leaves_no_room_bind(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    market = make_market(make_offer("big8", 20.0, stock=2), make_offer("lean8", 12.0))
    free = cheapest(problem_of(market, workload, policy), 15.0, 0.0)
    assert free is not None
    capped = policy.model_copy(update={"max_usd_per_hour": free.solution.objective * 1.05})
    assert "hourly_budget" in binding(problem_of(market, workload, capped), 15.0)
    lone = make_market(make_offer("big8", 20.0, stock=2))
    assert "stock[acme/us-one/a/big8/on_demand]" in binding(problem_of(lone, workload, policy), 10.0)


def test_domains_that_must_survive_bind(market: Market, workload: Workload, policy: Policy) -> None:
    careful = policy.model_copy(update={"survival_share": 0.5})
    names = binding(problem_of(market, workload, careful), 10.0)
    assert any(name.startswith("survive[") for name in names)
