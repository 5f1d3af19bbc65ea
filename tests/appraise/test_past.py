"""Of a source's own past only what could be true is believed, and the rest is counted."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hexcloud.appraise.known import Known
from hexcloud.appraise.past import JudgedPast, judge_past
from hexcloud.domain.market import Outcome
from hexcloud.domain.offer import OfferId
from hexcloud.domain.prices import PastPart, PastPrice

NOON = datetime(2026, 7, 20, 12, tzinfo=UTC)
P5 = OfferId("aws/us-east-1/use1-az1/p5.48xlarge/spot")
KNOWN = Known(usual_usd_per_gpu_hour={"H100": 4.0}, usd_per_unit={"USD": 1.0, "CNY": 0.125}, latest=NOON)
ON_DEMAND = {"p5.48xlarge": 55.0}


def at(hour: float) -> float:
    return (NOON + timedelta(hours=hour)).timestamp()


def past(*hour_and_price: tuple[float, float], **odd: Any) -> PastPart:
    facts: dict[str, Any] = {
        "source": "aws",
        "cloud": "aws",
        "region": "us-east-1",
        "as_of": NOON,
        "prices": tuple(PastPrice(P5, at(hour), price) for hour, price in hour_and_price),
        "gpus": {"p5.48xlarge": ("H100", 8)},
    }
    return PastPart(**{**facts, **odd})


def hours(judged: JudgedPast) -> list[tuple[float, float, float | None]]:
    """Hours after noon at which each believed price began and ended, and the price, USD/h."""
    noon = NOON.timestamp()
    return [
        ((change.at_s - noon) / 3600, (change.confirmed_s - noon) / 3600, change.usd_per_hour)
        for change in judged.changes
    ]


def refused(judged: JudgedPast) -> tuple[int, int]:
    return judged.outcomes[Outcome.QUARANTINE], judged.outcomes[Outcome.REJECT]


def test_each_price_lasts_until_the_next_and_the_last_until_the_source_was_asked() -> None:
    judged = judge_past(past((-4, 22.0), (-20, 20.0), (-9, 20.0), (-7, 21.0)), KNOWN, ON_DEMAND)
    assert hours(judged) == [(-20, -7, 20.0), (-7, -4, 21.0), (-4, 0, 22.0)], "a repeated price is no change"
    assert judged.outcomes == {Outcome.ACCEPT: 4, Outcome.FLAG: 0, Outcome.QUARANTINE: 0, Outcome.REJECT: 0}
    assert {(change.offer_id, change.source, change.currency) for change in judged.changes} == {(P5, "aws", "USD")}


def test_what_cannot_be_true_is_counted_and_changes_nothing_else() -> None:
    bad = [(-8, 0.0), (-7, math.nan), (-6, 60.0), (-5, 0.01), (-4, math.inf), (-3, -1.0)]
    judged = judge_past(past((-20, 20.0), *bad, (-2, 21.0)), KNOWN, ON_DEMAND)
    assert hours(judged) == [(-20, -8, 20.0), (-2, 0, 21.0)]
    assert refused(judged) == (1, 5), "spot over on-demand is rejected, far too cheap waits for ever"


def test_a_step_is_believed_from_the_next_price_that_agrees() -> None:
    judged = judge_past(past((-20, 20.0), (-9, 30.0), (-5, 30.5)), KNOWN, ON_DEMAND)
    assert hours(judged) == [(-20, -9, 20.0), (-5, 0, 30.5)]
    assert refused(judged) == (1, 0)


def test_without_a_price_on_demand_a_spot_price_is_held_against_the_rest_alone() -> None:
    assert hours(judge_past(past((-20, 60.0)), KNOWN, {})) == [(-20, 0, 60.0)]


def test_a_machine_with_an_odd_number_of_gpus_has_no_past() -> None:
    odd = past((-20, 20.0), gpus={"p5.48xlarge": ("H100", 12)})
    assert (judge_past(odd, KNOWN, ON_DEMAND).changes, refused(judge_past(odd, KNOWN, ON_DEMAND))) == ((), (1, 0))


def test_a_currency_is_converted_at_the_rate_in_force_and_the_list_price_is_kept() -> None:
    (change,) = judge_past(past((-20, 160.0), currency="CNY"), KNOWN, ON_DEMAND).changes
    assert (change.usd_per_hour, change.list_price, change.currency) == (20.0, 160.0, "CNY")
    assert refused(judge_past(past((-20, 160.0), currency="EUR"), KNOWN, ON_DEMAND)) == (0, 1)


def test_a_date_that_has_not_been_or_a_name_of_elsewhere_is_rejected() -> None:
    strange = past(prices=())
    names = ("aws/us-west-2/usw2-az1/p5.48xlarge/spot", "aws/us-east-1/a/b/p5.48xlarge/spot", "aws/us-east-1/")
    prices = [PastPrice(OfferId(name), at(-1), 20.0) for name in names]
    prices += [PastPrice(P5, when, 20.0) for when in (math.nan, math.inf, -math.inf, 0.0, at(1))]
    judged = judge_past(strange.model_copy(update={"prices": tuple(prices)}), KNOWN, ON_DEMAND)
    assert (judged.changes, refused(judged)) == ((), (0, len(prices)))


def test_of_two_prices_at_one_moment_the_dearer_counts() -> None:
    for pair in ([(-5, 20.0), (-5, 21.0)], [(-5, 21.0), (-5, 20.0)]):
        assert hours(judge_past(past(*pair), KNOWN, ON_DEMAND)) == [(-5, 0, 21.0)]


def test_nothing_known_of_the_past_is_nothing_believed() -> None:
    assert judge_past(past(), KNOWN, {}) == ((), dict.fromkeys(Outcome, 0))


anything = st.floats(allow_nan=True, allow_infinity=True)
prices = st.one_of(anything, st.floats(1.0, 60.0))
moments = st.one_of(anything, st.integers(-2000, 2).map(at))
names = st.sampled_from([P5, OfferId("aws/us-east-1/use1-az2/p5.48xlarge/spot"), OfferId("aws/x"), OfferId("")])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.builds(PastPrice, names, moments, prices), max_size=20), st.randoms())
def test_whatever_a_source_says_only_sums_that_can_be_paid_are_believed_in_any_order(
    said: list[PastPrice], chance: Any
) -> None:
    judged = judge_past(past().model_copy(update={"prices": tuple(said)}), KNOWN, ON_DEMAND)
    for change in judged.changes:
        assert change.usd_per_hour is not None and 0 < change.usd_per_hour <= 55.0 * 1.001
        assert 0 < change.at_s <= change.confirmed_s <= NOON.timestamp()
    assert sum(judged.outcomes.values()) <= len(said)
    mixed = list(said)
    chance.shuffle(mixed)
    assert judge_past(past().model_copy(update={"prices": tuple(mixed)}), KNOWN, ON_DEMAND).changes == judged.changes
