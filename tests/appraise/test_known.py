import math
from collections.abc import Callable
from typing import Any

import pytest

from hexcloud.appraise.known import Known, agree, in_force
from hexcloud.domain.offer import OfferId
from hexcloud.domain.prices import Voucher
from hexcloud.domain.row import Row

MakeRow = Callable[..., Row]
RATES = {"USD": 1.0, "CNY": 0.125}


def known(row: Row, rule: str = "step", **odd: Any) -> Known:
    """One word for a price of 40.0 USD."""
    said = {"offer_id": row.id, "source": "list", "list_price": 40.0, "currency": "USD", "by": "user", "at_s": 0.0}
    return Known(usd_per_unit=RATES, vouched=(Voucher.model_validate({**said, "rule": rule, **odd}),))


def test_a_word_is_for_one_offer_and_one_rule(row: MakeRow) -> None:
    assert known(row()).vouches(row(), "step")
    assert not known(row()).vouches(row(), "far_too_cheap")
    assert not known(row()).vouches(row(zone="b"), "step")


def test_a_word_is_for_about_one_price_in_one_currency(row: MakeRow) -> None:
    word = known(row())
    assert word.vouches(row(price=28.1), "step") and word.vouches(row(price=57.0), "step")
    assert not word.vouches(row(price=27.9), "step") and not word.vouches(row(price=57.2), "step")
    assert not word.vouches(row(currency="CNY"), "step")
    assert not known(row(), list_price=None).vouches(row(), "step"), "a word without a price frees nothing"


def test_the_users_word_is_for_one_source_and_a_bill_speaks_for_its_price_whoever_lists_it(row: MakeRow) -> None:
    copy = row(source="copy")
    assert not known(row()).vouches(copy, "step")
    bill = known(row(), by="bill", usd_per_hour=40.0)
    assert bill.vouches(copy, "step") and not bill.vouches(row(source="copy", price=4.0), "step")
    assert bill.vouches(row(source="copy", price=320.0, currency="CNY"), "step")
    assert not bill.vouches(row(source="copy", currency="ISK"), "step"), "nobody can say"


def test_a_word_taken_back_counts_no_more_and_a_later_one_does_again(row: MakeRow) -> None:
    (mine,) = known(row()).vouched
    other = mine.model_copy(update={"offer_id": OfferId("aws/r/-/small/spot")})
    back = Voucher(offer_id=mine.offer_id, by="user", at_s=1.0, takes_back=True)
    assert in_force([mine, other]) == (mine, other)
    assert in_force([mine, other, back]) == (other,)
    assert in_force([mine, back, mine]) == (mine,)
    assert in_force([]) == ()


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -4.0])
def test_what_is_no_price_agrees_with_nothing(bad: float) -> None:
    assert not agree(bad, 4.0) and not agree(4.0, bad) and not agree(bad, bad)
