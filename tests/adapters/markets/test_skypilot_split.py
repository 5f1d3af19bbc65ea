"""The price of a machine cut in two: the two sum to it, for every machine that is written."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from hexcloud.adapters.files import load_gpu_names, load_gpus
from hexcloud.adapters.markets.skypilot_names import GpuNames
from hexcloud.adapters.markets.skypilot_split import USD_PER_VCPU, Pair, gcp_table, split
from hexcloud.adapters.markets.skypilot_tables import Sales, Words
from hexcloud.domain.offer import Offer, Tenure, offer_id

T4, V100 = ("T4", 1), ("V100", 1)
WORDS = Words(GpuNames(load_gpu_names()), load_gpus())


def offer(
    kind: str, gpu: str, usd: float, zone: str | None, tenure: Tenure = Tenure.ON_DEMAND, count: int = 1
) -> Offer:
    return Offer(
        id=offer_id("gcp", "us", zone, kind, tenure),
        cloud="gcp",
        region="us",
        zone=zone,
        instance_type=kind,
        tenure=tenure,
        gpu=gpu,
        gpu_count=count,
        vcpus=8,
        memory_gib=30,
        network_gb_per_s=1,
        usd_per_hour=usd,
        as_of=datetime(2026, 1, 1, tzinfo=UTC),
        source="x",
    )


def test_a_host_that_several_gpus_share_has_one_price() -> None:
    pairs = [Pair("n1-standard-8", 8, T4, 0.73), Pair("n1-standard-8", 8, V100, 2.86)]
    cut = split(pairs, Tenure.ON_DEMAND)
    assert cut.hosts == {"n1-standard-8": 0.365}
    assert all(cut.has(pair) for pair in pairs)


def test_a_gpu_on_several_hosts_has_one_price() -> None:
    pairs = [Pair("g2-standard-4", 4, ("L4", 1), 0.7), Pair("g2-standard-8", 8, ("L4", 1), 0.85)]
    cut = split(pairs, Tenure.ON_DEMAND)
    assert list(cut.accelerators) == [("L4", 1)] and all(cut.has(pair) for pair in pairs)
    assert cut.hosts == {"g2-standard-4": 0.19, "g2-standard-8": 0.34}


def test_a_sum_that_no_prices_meet_is_left_out() -> None:
    ring = [
        Pair("h1", 8, T4, 1.0),
        Pair("h1", 8, V100, 2.0),
        Pair("h2", 8, T4, 3.0),
        Pair("h2", 8, V100, 9.0),
    ]
    cut = split(ring, Tenure.ON_DEMAND)
    assert [cut.has(pair) for pair in ring] == [True, True, True, False]


@given(
    st.lists(
        st.builds(
            Pair,
            st.sampled_from(["h1", "h2", "h3"]),
            st.sampled_from([4.0, 8.0, 96.0]),
            st.sampled_from([T4, V100, ("L4", 8)]),
            st.floats(min_value=0.01, max_value=200).map(lambda usd: round(usd, 6)),
        ),
        max_size=9,
    ),
    st.sampled_from(Tenure),
)
def test_every_part_has_a_price_over_zero_and_the_cheapest_machine_is_always_met(
    pairs: list[Pair], tenure: Tenure
) -> None:
    cut = split(pairs, tenure)
    assert all(price > 0 for price in (*cut.hosts.values(), *cut.accelerators.values()))
    if pairs:
        assert cut.has(min(pairs, key=lambda pair: (pair.usd_per_hour, pair)))
    assert split(reversed(pairs), tenure) == cut
    assert USD_PER_VCPU[Tenure.SPOT] < USD_PER_VCPU[Tenure.ON_DEMAND]


def test_on_demand_sums_are_equal_in_all_zones_and_spot_ones_are_not() -> None:
    offers = [
        offer("n1-standard-8+1xT4", "T4", 0.73, "us-a"),
        offer("n1-standard-8+1xT4", "T4", 0.73, "us-b"),
        offer("n1-standard-8+1xT4", "T4", 0.20, "us-a", Tenure.SPOT),
        offer("n1-standard-8+1xT4", "T4", 0.30, "us-b", Tenure.SPOT),
    ]
    table = gcp_table(Sales(offers, has_zones=True), WORDS)
    assert [(cells["InstanceType"], cells["AcceleratorName"], cells["AvailabilityZone"]) for cells in table] == [
        ("", "T4", "us-a"),
        ("n1-standard-8", "", "us-a"),
        ("", "T4", "us-b"),
        ("n1-standard-8", "", "us-b"),
    ]
    sums = [
        [
            round(sum(float(cells[column]) for cells in table if cells["AvailabilityZone"] == zone), 6)
            for zone in ("us-a", "us-b")
        ]
        for column in ("Price", "SpotPrice")
    ]
    assert sums == [[0.73, 0.73], [0.2, 0.3]]
