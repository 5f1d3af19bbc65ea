import pytest

from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from tests.planner.solving import TARGET, MakeMarket, MakeOffer, solved


@pytest.mark.parametrize(
    ("region", "zone", "usd_per_gb"),
    [("us-one", "a", 0.0), ("us-one", "b", 0.01), ("us-two", "a", 0.02), ("eu-one", "a", 0.09)],
)
def test_egress_is_one_copy_per_version_by_distance(
    make_offer: MakeOffer,
    make_market: MakeMarket,
    workload: Workload,
    policy: Policy,
    region: str,
    zone: str,
    usd_per_gb: float,
) -> None:
    source, target = make_offer(stock=1), make_offer("lean8", region=region, zone=zone)
    rules, solution = solved(make_market(source, target), workload, policy, source)
    per_version = workload.version_bytes / 1e9 * usd_per_gb
    assert rules.egress.usd_per_hour(solution) == pytest.approx(per_version * 3600 * TARGET / 256, abs=1e-6)


def test_a_free_way_out_still_pays_between_the_zones_of_the_other_cloud(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    """The source's cloud bills nothing, the target's cloud bills one copy from its first zone to its second."""
    source = make_offer(cloud="free", stock=1)
    zones = tuple(make_offer("lean8", zone=zone, stock=1) for zone in "ab")
    busy = workload.model_copy(update={"reward_cpu_s_per_sample": 20.0})
    rules, solution = solved(make_market(source, *zones), busy, policy, source)
    per_version = workload.version_bytes / 1e9 * 0.01
    assert rules.egress.usd_per_hour(solution) == pytest.approx(per_version * 3600 * TARGET / 256)
