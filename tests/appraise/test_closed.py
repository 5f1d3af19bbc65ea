"""What the cloud itself no longer lists is not for sale, and nobody else's list closes anything."""

from collections.abc import Callable
from typing import Any

import pytest

from hexcloud.appraise.closed import Closed
from hexcloud.appraise.gate import offers_of
from hexcloud.domain.market import Outcome
from hexcloud.domain.offer import Offer
from hexcloud.domain.prices import Refresh
from hexcloud.domain.row import Belief, Row

MakeRow = Callable[..., Row]
DAY_S = 86400.0
ANSWERED_S = 1784505600.0 + 5 * DAY_S
"""Five days after the rows of this folder's tests."""


def answered(**odd: Any) -> Refresh:
    facts: dict[str, Any] = {
        "source": "aws",
        "cloud": "aws",
        "region": "us-east-1",
        "at_s": ANSWERED_S,
        "good_s": ANSWERED_S,
        "rows": 1,
        "complete": True,
    }
    return Refresh(**{**facts, **odd})


@pytest.fixture
def old(row: MakeRow) -> Callable[..., Offer]:
    """Make an offer of another source's list."""

    def make(**odd: Any) -> Offer:
        (offer,) = offers_of([Belief(row=row(**odd), outcome=Outcome.ACCEPT)])
        return offer

    return make


MakeOffer = Callable[..., Offer]


def test_a_spot_price_stands_only_in_a_zone_that_is_listed(row: MakeRow, old: MakeOffer) -> None:
    listed = [row(tenure="spot", zone="a", source="aws"), row(zone="b", source="aws")]
    closed = Closed([answered()], listed)
    assert closed.by(old(tenure="spot", zone="a")) == ""
    assert closed.by(old(tenure="spot", zone="b")) == "aws", "there it is sold on demand only"
    assert closed.by(old(tenure="spot", zone=None)) == "aws", "a price for the whole region says nothing of zones"


def test_an_on_demand_price_stands_where_any_zone_of_the_region_is_listed(row: MakeRow, old: MakeOffer) -> None:
    closed = Closed([answered()], [row(zone="b", source="aws")])
    assert closed.by(old(zone="a")) == closed.by(old(zone=None)) == ""
    assert closed.by(old(instance_type="small")) == "aws"
    assert Closed([answered()], [row(tenure="spot", source="aws")]).by(old()) == "aws", "it is sold as spot only"


@pytest.mark.parametrize("odd", [{"complete": False}, {"good_s": None}, {"region": "eu-west-1"}, {"cloud": "gcp"}])
def test_without_a_complete_answer_for_the_region_everything_stands(
    row: MakeRow, old: MakeOffer, odd: dict[str, Any]
) -> None:
    assert Closed([answered(**odd)], [row(source="aws")]).by(old(instance_type="small")) == ""


def test_what_is_younger_than_the_answer_stands(row: MakeRow, old: MakeOffer) -> None:
    closed = Closed([answered()], [])
    assert closed.by(old(as_of="2026-07-26")) == ""
    assert closed.by(old(as_of="2026-07-24")) == "aws"


def test_another_sources_row_lists_nothing_for_the_cloud(row: MakeRow, old: MakeOffer) -> None:
    assert Closed([answered()], [row(source="list")]).by(old()) == "aws"


def test_of_two_complete_answers_the_later_counts(row: MakeRow, old: MakeOffer) -> None:
    earlier = answered(source="before", good_s=ANSWERED_S - DAY_S)
    for order in ([earlier, answered()], [answered(), earlier]):
        closed = Closed(order, [row(source="aws"), row(instance_type="small", source="before")])
        assert (closed.by(old()), closed.by(old(instance_type="small"))) == ("", "aws")
