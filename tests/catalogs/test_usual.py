"""What things usually cost, which counts are odd, what currencies are worth."""

import math
from collections import defaultdict
from statistics import median

import pytest

from hexcloud.adapters.catalog_models import UsualCatalog
from hexcloud.adapters.files import catalog_root, load_gpus, load_odd_counts, load_rates, load_usual, load_yaml
from hexcloud.adapters.markets.snapshot import read_rows
from hexcloud.appraise.limits import GPU_COUNTS


@pytest.fixture(scope="module")
def bundled() -> dict[str, float]:
    """Median over clouds of each cloud's median on-demand price per GPU-hour."""
    prices: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted((catalog_root() / "offers").glob("*.csv")):
        for row in read_rows(path):
            if row.tenure == "on_demand":
                prices[row.gpu][row.cloud].append(row.price / row.gpu_count)
    return {gpu: median(median(listed) for listed in clouds.values()) for gpu, clouds in prices.items()}


def test_usual_prices_agree_with_the_bundle_within_a_factor_of_two(bundled: dict[str, float]) -> None:
    usual = load_usual()
    assert set(bundled) <= set(usual)
    for gpu, price in bundled.items():
        assert price / 2 <= usual[gpu] <= price * 2, gpu


def test_old_and_other_accelerators_have_a_usual_price_too() -> None:
    usual = load_usual()
    assert set(usual) >= {"K80", "M60", "P100", "P4", "V100", "T4", "T4g", "Inferentia", "Trainium", "A10", "A6000"}
    assert set(usual) >= {"tpu-v2-8", "tpu-v3-8", "tpu-v4-8"}
    assert all(0 < price < math.inf for price in usual.values())


def test_every_usual_price_says_from_when_and_where_it_is() -> None:
    catalog = load_yaml(catalog_root() / "usual.yaml", UsualCatalog)
    assert len({price.gpu for price in catalog.prices}) == len(catalog.prices)
    assert {price.source for price in catalog.prices} == {"bundle", "public"}
    assert all(price.as_of <= catalog.as_of for price in catalog.prices)


def test_a_better_gpu_of_one_family_usually_costs_no_less() -> None:
    usual = load_usual()
    for family in (("T4", "A10G"), ("L4", "L40S"), ("A100-40GB", "A100-80GB", "H100", "H200", "B200", "B300")):
        assert [usual[gpu] for gpu in family] == sorted(usual[gpu] for gpu in family)


def test_every_gpu_that_can_be_rented_has_a_usual_price() -> None:
    assert set(load_gpus()) - set(load_usual()) == {"H20", "H800"}


def test_odd_counts_are_odd() -> None:
    odd = load_odd_counts()
    assert odd == {"inf2.24xlarge": 6.0, "inf2.48xlarge": 12.0}
    assert not set(odd.values()) & GPU_COUNTS


def test_a_euro_is_worth_more_than_a_dollar_and_a_yuan_less() -> None:
    rates = load_rates()
    assert set(rates) == {"USD", "EUR", "CNY"} and rates["USD"] == 1.0
    assert 0.9 < rates["EUR"] < 1.5 and 0.1 < rates["CNY"] < 0.2
