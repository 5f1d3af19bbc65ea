import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hexcloud.appraise.known import Known, Seen
from hexcloud.appraise.witness import Witnesses
from hexcloud.domain.row import Row

MakeRow = Callable[..., Row]
SAYS = Seen(
    cloud="aws",
    region="us-east-1",
    instance_type="big",
    tenure="on_demand",
    gpu_count=8,
    usd_per_hour=40.0,
    lineage="other",
)


def confirmed(row: Row, usd: float = 40.0, **odd: Any) -> bool:
    witnesses = Witnesses(Known(seen=(SAYS.model_copy(update=odd),)))
    assert witnesses.confirm_count(row, usd) or not witnesses.confirm_price(row, usd), "a price says a count too"
    return witnesses.confirm_price(row, usd)


def test_an_independent_source_that_says_the_same_is_a_witness(row: MakeRow) -> None:
    assert confirmed(row())
    assert confirmed(row(zone=None)), "an on-demand price and a count hold for the whole region"


def test_two_sources_that_wait_for_each_other_are_witnesses_of_a_count_and_not_of_a_price(row: MakeRow) -> None:
    waiting = Witnesses(Known(seen=(SAYS.model_copy(update={"gpu_count": 12, "is_believed": False}),)))
    assert waiting.confirm_count(row(gpu_count=12), 40.0)
    assert not waiting.confirm_price(row(gpu_count=12), 40.0)


def test_who_said_so_over_a_year_before_is_no_witness_of_a_price(row: MakeRow) -> None:
    listed = datetime(2026, 7, 20, tzinfo=UTC)
    assert confirmed(row(as_of="2026-07-20"), as_of=listed - timedelta(days=365))
    assert not confirmed(row(as_of="2026-07-20"), as_of=listed - timedelta(days=366))
    assert confirmed(row(as_of="2026-07-20"), as_of=listed + timedelta(days=500))
    old = Witnesses(Known(seen=(SAYS.model_copy(update={"as_of": datetime(2020, 1, 1, tzinfo=UTC)}),)))
    assert old.confirm_count(row(), 40.0), "how many GPUs a machine has does not change"


def test_who_repeats_the_same_lineage_is_no_witness(row: MakeRow) -> None:
    assert not confirmed(row(), lineage="list")
    assert not confirmed(row(source="copy", lineage="other"))
    assert not confirmed(row(), lineage=""), "nobody knows where it has the price from"


@pytest.mark.parametrize(
    "odd", [{"region": "moon"}, {"tenure": "spot"}, {"instance_type": "small"}, {"gpu_count": 4}, {"cloud": "gcp"}]
)
def test_a_word_about_another_machine_is_none_about_this(row: MakeRow, odd: dict[str, Any]) -> None:
    assert not confirmed(row(), **odd)


def test_prices_agree_within_three_tenths_of_the_larger(row: MakeRow) -> None:
    assert confirmed(row(), usd=28.1) and confirmed(row(), usd=57.0)
    assert not confirmed(row(), usd=27.9) and not confirmed(row(), usd=57.2)


@pytest.mark.parametrize("price", [math.nan, math.inf, 0.0, -40.0])
def test_a_price_that_is_none_agrees_with_nobody(row: MakeRow, price: float) -> None:
    assert not confirmed(row(), usd_per_hour=price)


def test_the_highest_believed_on_demand_price_of_a_region_or_a_cloud_is_told() -> None:
    dear, moon = SAYS.model_copy(update={"usd_per_hour": 44.0}), SAYS.model_copy(update={"region": "moon"})
    doubted = SAYS.model_copy(update={"usd_per_hour": 90.0, "is_believed": False})
    spot = SAYS.model_copy(update={"usd_per_hour": 80.0, "tenure": "spot"})
    others = Witnesses(Known(seen=(SAYS, dear, moon, doubted, spot)))
    assert others.on_demand("aws", "us-east-1", "big") == 44.0
    assert others.on_demand("aws", "moon", "big") == 40.0
    assert others.on_demand("aws", "", "big") == 44.0
    assert others.on_demand("gcp", "", "big") is None
