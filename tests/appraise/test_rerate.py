"""A rate is typed in by hand: what it makes of believed prices is judged as the prices were."""

from collections.abc import Callable
from typing import Any

import pytest

from hexcloud.appraise.rerate import rerated
from hexcloud.domain.market import Outcome
from hexcloud.domain.row import Belief, Row

MakeRow = Callable[..., Row]
USUAL = {"H100": 4.0}


@pytest.fixture
def yuan(row: MakeRow) -> Callable[..., Belief]:
    """An 8-GPU machine for 400 CNY, 7 USD a GPU-hour at the catalog's rate."""

    def make(usd_per_unit: float = 0.14, **odd: Any) -> Belief:
        facts = {"price": 400.0, "currency": "CNY", **odd}
        return Belief(row=row(**facts), outcome=Outcome.ACCEPT, usd_per_unit=usd_per_unit)

    return make


def at(belief: Belief, usd_per_unit: float) -> Belief:
    (told,) = rerated([belief], {"CNY": usd_per_unit}, USUAL)
    return told


def test_a_list_price_follows_the_rate(yuan: Callable[..., Belief], row: MakeRow) -> None:
    dollars = Belief(row=row(), outcome=Outcome.FLAG, rule="floor_price")
    told = rerated([dollars, yuan()], {"CNY": 0.15}, USUAL)
    assert told == (dollars, yuan(0.15))
    assert rerated([dollars, yuan()], {}, USUAL) == (dollars, yuan())


@pytest.mark.parametrize("rate", [0.00014, 1e-300])
def test_a_rate_that_makes_a_price_far_too_cheap_makes_no_offer(yuan: Callable[..., Belief], rate: float) -> None:
    told = at(yuan(), rate)
    assert (told.outcome, told.rule, told.field) == (Outcome.QUARANTINE, "far_too_cheap", "price")
    assert f"at the rate of {rate:g} USD for one CNY" in told.reason


@pytest.mark.parametrize("rate", [float("inf"), float("nan"), 0.0, -1.0])
def test_a_rate_that_converts_nothing_makes_no_offer_and_says_so(yuan: Callable[..., Belief], rate: float) -> None:
    told = at(yuan(), rate)
    assert told.outcome is Outcome.REJECT and not told.is_believed
    assert "CNY" in told.reason


def test_too_dear_is_no_error(yuan: Callable[..., Belief]) -> None:
    assert at(yuan(), 1.4) == yuan(1.4)


def test_what_was_freed_before_the_rate_stays_free_while_its_price_is_about_the_same(
    yuan: Callable[..., Belief],
) -> None:
    cheap = yuan(price=10.0)
    assert at(cheap, 0.15).is_believed, "somebody vouched for it"
    assert not at(cheap, 0.05).is_believed, "not for this price"
    odd = yuan(gpu_count=6, missing="2 x H100")
    assert at(odd, 0.15).is_believed, "a rate changes neither count nor parts"
