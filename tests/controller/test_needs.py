from hexcloud import wiring
from hexcloud.controller.needs import needs_of
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.run import RunSpec
from hexcloud.planner.plan import make_plan


def test_a_plan_needs_its_machines_their_regions_and_their_quota() -> None:
    given = wiring.snapshot_input(RunSpec(cloud=("aws",), target="10k", policy="on_demand_only"))
    plan = make_plan(given.market, given.workload, given.policy, FleetState()).plan
    needs = needs_of(plan, given.market)
    offers = [given.market.offer(slot.offer_id) for slot in plan.placement.slots]
    assert sum(int(line.split(" x ")[0]) for line in needs.machines) == len(plan.placement.slots)
    assert set(needs.regions) == {offer.region for offer in offers if offer}
    assert sum(needs.quota_units.values()) == sum(offer.quota_units for offer in offers if offer and offer.quota)
    assert all(key.startswith("aws/") for key in needs.quota_units)


def test_google_clouds_limit_over_all_regions_is_asked_for_too() -> None:
    given = wiring.snapshot_input(RunSpec(cloud=("gcp",), target="10k", policy="on_demand_only"))
    plan = make_plan(given.market, given.workload, given.policy, FleetState()).plan
    offers = [given.market.offer(slot.offer_id) for slot in plan.placement.slots]
    units = needs_of(plan, given.market).quota_units
    assert units["gcp/global/GPUS_ALL_REGIONS"] == sum(offer.gpu_count for offer in offers if offer)
