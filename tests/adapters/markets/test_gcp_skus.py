"""The price list of Compute Engine: which SKU bills what."""

import math
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexcloud.adapters.clouds.gcp_answers import Sku, Tier
from hexcloud.adapters.markets.gcp_facts import load_gcp_facts
from hexcloud.adapters.markets.gcp_skus import Billed, Kind, PriceList, price_list, what_is_billed
from hexcloud.domain.offer import Tenure

FACTS = load_gcp_facts()


def gpu(words: str) -> Billed:
    return Billed(Kind.GPU, words)


L4 = gpu("Nvidia L4 GPU")


def sku(words: str, price: float = 1.0, unit: str = "h", usage: str = "OnDemand", currency: str = "USD") -> Sku:
    return Sku(f"ID-{price:g}", words, ("us-central1",), usage, unit, (Tier(0, price, currency),))


def prices(*skus: Sku, currency: str = "USD") -> PriceList:
    return price_list(skus, FACTS, currency)


def price_of(listed: PriceList, part: Billed = L4, tenure: Tenure = Tenure.ON_DEMAND) -> float | None:
    found = listed.price("us-central1", tenure, part)
    return None if found is None else found.amount


@pytest.mark.parametrize(
    ("words", "tenure", "part"),
    [
        ("A3 Instance Core running in Americas", "on_demand", Billed(Kind.CORE, "A3")),
        ("A3Plus Instance Ram running in Tokyo", "on_demand", Billed(Kind.MEMORY, "A3Plus")),
        ("A3 Ultra Instance Core running in Iowa", "on_demand", Billed(Kind.CORE, "A3Ultra")),
        ("Spot Preemptible A2 Instance Ram running in Japan", "spot", Billed(Kind.MEMORY, "A2")),
        ("N1 Predefined Instance Core running in São Paulo", "on_demand", Billed(Kind.CORE, "N1 Predefined")),
        (
            "Nvidia Tesla A100 80GB GPU running in Netherlands",
            "on_demand",
            Billed(Kind.GPU, "Nvidia Tesla A100 80GB GPU"),
        ),
        ("Nvidia H100 80GB Plus GPU running in Americas", "on_demand", Billed(Kind.GPU, "Nvidia H100 80GB Mega GPU")),
        ("Nvidia L4 GPU attached to Spot Preemptible VMs running in Delhi", "spot", L4),
        ("RTX 6000 96GB running in Iowa", "on_demand", gpu("RTX 6000 96GB")),
        (
            "Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Iowa",
            "spot",
            Billed(Kind.GPU, "A4 Nvidia B200 (1 gpu slice)"),
        ),
        ("SSD backed Local Storage", "on_demand", Billed(Kind.DISK)),
        ("SSD backed Local Storage in Paris", "on_demand", Billed(Kind.DISK)),
        ("SSD backed Local Storage attached to Spot Preemptible VMs in Paris", "spot", Billed(Kind.DISK)),
    ],
)
def test_a_sku_is_read_by_its_words(words: str, tenure: str, part: Billed) -> None:
    assert what_is_billed(sku(words), FACTS) == (tenure, part)


@pytest.mark.parametrize(
    "words",
    [
        "Commitment v1: A2 Core in Americas for 1 Year",
        "Nvidia L4 GPU attached to DWS Defined Duration VMs running in Americas",
        "Reserved Nvidia H100 80GB Mega GPU in Americas in Calendar Mode",
        "Nvidia Tesla T4 GPU attached to Sole Tenancy VMs running in Americas",
        "1/8 vGPU no lssd running in Iowa",
        "Reserved A2 Ram in Netherlands",
        "C4D Instance Local SSD running in Frankfurt",
        "Storage PD Capacity in Paris",
        "",
    ],
)
def test_a_price_with_strings_attached_is_not_taken_for_a_plain_one(words: str) -> None:
    assert what_is_billed(sku(words), FACTS) is None


def test_usage_types_other_than_two_are_not_prices() -> None:
    assert what_is_billed(sku("Nvidia L4 GPU running in Iowa", usage="Commit1Yr"), FACTS) is None
    assert what_is_billed(sku("Nvidia L4 GPU running in Iowa", usage="Preemptible"), FACTS) == (Tenure.SPOT, L4)


@pytest.mark.parametrize(
    ("words", "unit", "part", "per_hour"),
    [
        ("A2 Instance Core running in Iowa", "h", Billed(Kind.CORE, "A2"), 7.3),
        ("A2 Instance Ram running in Iowa", "GiBy.h", Billed(Kind.MEMORY, "A2"), 7.3),
        ("A2 Instance Ram running in Iowa", "GBy.h", Billed(Kind.MEMORY, "A2"), 7.3 * 1.073741824),
        ("SSD backed Local Storage", "GiBy.mo", Billed(Kind.DISK), 0.01),
    ],
)
def test_units_become_hours_cores_and_gib(words: str, unit: str, part: Billed, per_hour: float) -> None:
    assert price_of(prices(sku(words, 7.3, unit)), part) == pytest.approx(per_hour)


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        (sku("Nvidia L4 GPU running in Iowa", unit="d"), "SKU ID-1 is priced per 'd', a unit we do not know"),
        (sku("Nvidia L4 GPU running in Iowa", unit="GiBy.h"), "SKU ID-1 is priced per 'GiBy.h', a unit we do not know"),
        (sku("Nvidia L4 GPU running in Iowa", currency="EUR"), "SKU ID-1 is priced in 'EUR', not in USD"),
        (sku("Nvidia L4 GPU running in Iowa", 0), "SKU ID-0 has no price over 0"),
        (sku("Nvidia L4 GPU running in Iowa", -1), "SKU ID--1 has no price over 0"),
        (sku("Nvidia L4 GPU running in Iowa", math.inf), "SKU ID-inf has no price over 0"),
        (Sku("ID", "Nvidia L4 GPU", ("us-central1",), "OnDemand", "h", ()), "SKU ID has no price over 0"),
    ],
)
def test_a_sku_that_is_not_understood_is_not_used_and_says_why(odd: Sku, why: str) -> None:
    listed = prices(odd)
    assert price_of(listed) is None and listed.refusal("us-central1", Tenure.ON_DEMAND, L4) == why


def test_free_tiers_are_skipped_and_the_first_paid_one_holds() -> None:
    tiers = (Tier(100, 0.8, "USD"), Tier(0, 0, "USD"), Tier(10, 0.9, "USD"))
    assert price_of(prices(Sku("ID", "Nvidia L4 GPU", ("us-central1",), "OnDemand", "h", tiers))) == 0.9


def test_another_currency_is_read_when_it_was_asked_for() -> None:
    assert price_of(prices(sku("Nvidia L4 GPU running in Iowa", 5, currency="JPY"), currency="JPY")) == 5


def test_of_two_prices_the_dearer_holds_in_whatever_order_they_come() -> None:
    words = "Nvidia L4 GPU running in Iowa"
    for order in permutations((sku(words, 0.5), sku(words, 0.7), sku(words, 9, unit="d"))):
        listed = prices(*order)
        assert price_of(listed) == 0.7 and listed.refusals == {}


WORDS = [
    "Spot Preemptible ",
    "Nvidia L4 GPU",
    " Instance Core",
    " Instance Ram",
    "A3",
    " running in ",
    " in ",
    " attached to ",
]
TEXTS = st.lists(st.sampled_from(WORDS) | st.text(max_size=5), max_size=6).map("".join)
SKUS = st.builds(
    Sku,
    st.text(),
    TEXTS,
    st.lists(st.sampled_from(["us-central1", "europe-west4", ""])).map(tuple),
    st.sampled_from(["OnDemand", "Preemptible", "Commit1Yr"]) | st.text(),
    st.sampled_from(["h", "GiBy.h", "GiBy.mo"]) | st.text(),
    st.lists(st.builds(Tier, st.floats(), st.floats(), st.sampled_from(["USD", "EUR"]))).map(tuple),
)


@settings(deadline=None)
@given(st.lists(SKUS))
def test_whatever_comes_every_price_is_positive_and_order_does_not_matter(skus: list[Sku]) -> None:
    listed = prices(*skus)
    assert all(0 < price.amount < math.inf for price in listed.prices.values())
    assert not set(listed.prices) & set(listed.refusals)
    assert prices(*reversed(skus)) == listed


@settings(deadline=None)
@given(st.text(alphabet=" \tinrug", max_size=3000))
def test_long_words_are_read_in_no_time(words: str) -> None:
    what_is_billed(sku(words), FACTS)
