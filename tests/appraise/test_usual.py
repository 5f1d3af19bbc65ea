"""What GPUs usually cost: the table's word, and of newer GPUs what believed prices say."""

from collections.abc import Callable
from typing import Any

from hexcloud.appraise.gate import gate, offers_of
from hexcloud.appraise.known import Known
from hexcloud.appraise.usual import usual_prices
from hexcloud.domain.offer import Offer
from hexcloud.domain.row import Row

MakeRow = Callable[..., Row]


def believed(row: MakeRow, *cloud_and_price: tuple[str, float], **odd: Any) -> tuple[Offer, ...]:
    rows = [row(**{"cloud": cloud, "price": price, "gpu": "Q9", **odd}) for cloud, price in cloud_and_price]
    return offers_of(gate(rows, Known()))


def test_of_a_gpu_in_the_table_the_table_counts(row: MakeRow) -> None:
    offers = believed(row, ("aws", 0.8), ("gcp", 0.8), ("neo", 0.8), gpu="H100")
    assert usual_prices({"H100": 4.0}, offers) == {"H100": 4.0}


def test_of_another_gpu_the_median_over_clouds_counts_from_three_clouds_on(row: MakeRow) -> None:
    three = (("aws", 80.0), ("gcp", 40.0), ("neo", 56.0))
    assert usual_prices({}, believed(row, *three[:2], ("aws", 40.0))) == {}
    assert usual_prices({}, believed(row, *three)) == {"Q9": 7.0}


def test_a_cloud_with_many_machines_counts_once(row: MakeRow) -> None:
    cheap = believed(row, *(("neo", 0.08 + number / 1000) for number in range(20)))
    assert usual_prices({}, (*cheap, *believed(row, ("aws", 80.0), ("gcp", 40.0))))["Q9"] == 5.0


def test_spot_and_unproven_offers_say_nothing_of_what_is_usual(row: MakeRow) -> None:
    three = (("aws", 80.0), ("gcp", 40.0), ("neo", 56.0))
    assert usual_prices({}, believed(row, *three, tenure="spot")) == {}
    assert usual_prices({}, believed(row, *three, listed=False)) == {}


def test_by_what_was_learned_a_placeholder_is_held_back(row: MakeRow) -> None:
    usual = usual_prices({}, believed(row, ("aws", 80.0), ("gcp", 40.0), ("neo", 56.0)))
    (belief,) = gate([row(cloud="shop", gpu="Q9", price=0.01)], Known(usual_usd_per_gpu_hour=usual))
    assert belief.rule == "far_too_cheap"
