from hexcloud.domain.fleet import FleetState
from hexcloud.domain.policy import Policy
from hexcloud.planner.plan import make_plan
from hexcloud.simulator.world import small_market, small_workload


def test_the_small_market_has_a_plan_for_the_small_workload() -> None:
    plan = make_plan(small_market(), small_workload(), Policy(target_samples_per_s=20.0), FleetState()).plan
    assert plan.forecast.samples_per_s >= 20.0
    assert len(plan.placement.slots) >= 3
