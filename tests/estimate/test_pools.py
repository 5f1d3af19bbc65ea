"""What our own machines teach: nothing where there were none, the truth where there were many."""

import random
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.calibration import Calibration, Efficiency
from hexcloud.domain.offer import Offer, OfferId, Tenure
from hexcloud.domain.stay import End, Stay
from hexcloud.estimate.pools import (
    DEPTH_AGE_S,
    PRIOR_LAUNCHES,
    PRIOR_MACHINE_H,
    depth,
    interruptions_per_hour,
    proven_pools,
    startup_s,
    with_experience,
)

POOL, OTHER = OfferId("acme/r/a/big/spot"), OfferId("acme/r/b/big/spot")
H = 3600.0
CALIBRATION = Calibration(
    efficiencies=(Efficiency(gpu="*", bandwidth=0.7, compute=0.5, mfu=0.4, source="test"),),
    startup_s=360,
    spot_interruptions_per_hour=0.1,
    source="test",
)


def offer(offer_id: OfferId = POOL, tenure: Tenure = Tenure.SPOT, **odd: object) -> Offer:
    return Offer(
        id=offer_id,
        cloud="acme",
        region="r",
        zone="a",
        instance_type="big",
        tenure=tenure,
        gpu="H100",
        gpu_count=8,
        vcpus=96,
        memory_gib=512,
        network_gb_per_s=10,
        usd_per_hour=12.0,
        as_of=datetime(2026, 7, 1, tzinfo=UTC),
        source="test",
    ).model_copy(update=odd)


def worked(hours: float, end: End | None = None, took_s: float = 360.0, at_s: float = 0.0) -> Stay:
    ready_at_s = at_s + took_s
    return Stay(offer_id=POOL, asked_at_s=at_s, ready_at_s=ready_at_s, until_s=ready_at_s + hours * H, end=end)


def stood(from_s: float, until_s: float, end: End | None = End.RELEASED) -> Stay:
    return Stay(offer_id=POOL, asked_at_s=from_s, ready_at_s=from_s, until_s=until_s, end=end)


def refused(at_s: float) -> Stay:
    return Stay(offer_id=POOL, asked_at_s=at_s, until_s=at_s, end=End.REFUSED)


def a_stay() -> st.SearchStrategy[Stay]:
    moment = st.floats(0, 10 * H)
    return st.builds(
        lambda pool, asked, ready, lasted, end: Stay(
            offer_id=pool,
            asked_at_s=asked,
            ready_at_s=None if ready is None or end in (End.REFUSED, End.NEVER_READY) else asked + ready,
            until_s=asked if end is End.REFUSED else asked + (ready or 0.0) + lasted,
            end=end,
        ),
        st.sampled_from([POOL, OTHER]),
        moment,
        st.none() | st.floats(0, 900),
        moment,
        st.sampled_from([None, *End]),
    )


STAYS = st.lists(a_stay(), max_size=12)


def test_without_a_stay_every_offer_is_left_as_it_is() -> None:
    offers = (offer(), offer(OTHER, stock=3, proven=False))
    assert with_experience(offers, (), CALIBRATION, 0.0) == offers


def test_what_one_pool_taught_is_not_believed_of_another() -> None:
    ours, other = with_experience((offer(), offer(OTHER)), [worked(5.0, End.TAKEN)], CALIBRATION, 0.0)
    assert ours.interruptions_per_hour is not None and ours.startup_s is not None
    assert other == offer(OTHER)


def test_the_prior_rate_weighs_as_much_as_its_hours() -> None:
    assert interruptions_per_hour([worked(0.0)], 0.1) == pytest.approx(0.1)
    lost_once = [worked(PRIOR_MACHINE_H, End.TAKEN)]
    assert interruptions_per_hour(lost_once, 0.1) == pytest.approx((0.1 + 1 / PRIOR_MACHINE_H) / 2)


def test_the_prior_start_up_weighs_as_much_as_its_launches() -> None:
    launches = [worked(1.0, took_s=100.0)] * int(PRIOR_LAUNCHES)
    assert startup_s(launches, 360.0) == pytest.approx((360.0 + 100.0) / 2)


@pytest.mark.parametrize("end", [End.REFUSED, End.NEVER_READY])
def test_a_machine_that_never_worked_teaches_neither_rate_nor_start_up(end: End) -> None:
    stays = [Stay(offer_id=POOL, asked_at_s=0.0, until_s=900.0, end=end)]
    assert interruptions_per_hour(stays, 0.1) is None
    assert startup_s(stays, 360.0) is None
    assert proven_pools(stays) == frozenset()


@pytest.mark.parametrize(("per_h", "mean_s"), [(0.02, 60.0), (0.3, 240.0), (1.5, 900.0)])
def test_many_machines_teach_the_truth(per_h: float, mean_s: float) -> None:
    rng = random.Random(7)
    stays = [worked(rng.expovariate(per_h), End.TAKEN, took_s=mean_s * rng.uniform(0.5, 1.5)) for _ in range(4000)]
    assert interruptions_per_hour(stays, 0.1) == pytest.approx(per_h, rel=0.06)
    assert startup_s(stays, 360.0) == pytest.approx(mean_s, rel=0.03)


def test_machines_we_released_ourselves_do_not_bias_the_rate() -> None:
    rng = random.Random(11)
    stays = []
    for _ in range(4000):
        hours = rng.expovariate(0.3)
        stays.append(worked(min(hours, 2.0), End.TAKEN if hours < 2.0 else End.RELEASED))
    assert interruptions_per_hour(stays, 0.1) == pytest.approx(0.3, rel=0.06)


@given(STAYS, st.floats(0.1, 100))
def test_an_hour_without_a_loss_lowers_the_rate_and_a_loss_raises_it(stays: list[Stay], hours: float) -> None:
    before = interruptions_per_hour(stays, 0.1) or 0.1
    quiet = interruptions_per_hour([*stays, worked(hours)], 0.1)
    lost = interruptions_per_hour([*stays, worked(hours, End.TAKEN)], 0.1)
    assert quiet is not None and lost is not None
    assert quiet < before
    assert lost > quiet


@given(STAYS, st.floats(0, 2000))
def test_a_slower_launch_never_makes_the_start_up_shorter(stays: list[Stay], took_s: float) -> None:
    fast = startup_s([*stays, worked(1.0, took_s=took_s)], 360.0)
    slow = startup_s([*stays, worked(1.0, took_s=took_s + 1.0)], 360.0)
    assert fast is not None and slow is not None and fast < slow


@given(STAYS, st.floats(0, 20 * H))
def test_the_order_of_stays_does_not_matter(stays: list[Stay], now_s: float) -> None:
    one, other = (with_experience((offer(),), order, CALIBRATION, now_s)[0] for order in (stays, stays[::-1]))
    assert (one.stock, one.proven) == (other.stock, other.proven)
    assert one.interruptions_per_hour == pytest.approx(other.interruptions_per_hour)
    assert one.startup_s == pytest.approx(other.startup_s)


@given(STAYS, st.floats(0, 20 * H))
def test_experience_always_makes_an_offer_that_can_be_built(stays: list[Stay], now_s: float) -> None:
    (learned,) = with_experience((offer(stock=5, proven=False),), stays, CALIBRATION, now_s)
    assert Offer.model_validate(learned.model_dump()) == learned
    assert learned.stock is not None and learned.stock <= 5


def test_of_a_pool_that_never_refused_nobody_knows_the_depth() -> None:
    assert depth([stood(0.0, H), stood(0.0, H)], 0.5 * H) is None


def test_a_refusal_caps_the_depth_at_what_was_held_then() -> None:
    held = [stood(0.0, 9 * H), stood(10.0, 9 * H), stood(20.0, 50.0)]
    assert depth([*held, refused(100.0)], 200.0) == 2
    assert depth([refused(100.0)], 200.0) == 0


def test_machines_asked_for_in_the_same_turn_are_held() -> None:
    assert depth([stood(100.0, 9 * H), stood(100.0, 9 * H), refused(100.0)], 200.0) == 2


def test_a_refusal_is_forgotten_when_it_is_old() -> None:
    stays = [stood(0.0, 9 * H), refused(100.0)]
    assert depth(stays, 100.0 + DEPTH_AGE_S - 1) == 1
    assert depth(stays, 100.0 + DEPTH_AGE_S) is None


def test_what_the_pool_gave_after_a_refusal_raises_the_cap() -> None:
    stays = [stood(0.0, 9 * H), refused(100.0), stood(200.0, 9 * H), stood(300.0, 9 * H)]
    assert depth(stays, 400.0) == 3
    assert depth([*stays, refused(500.0)], 600.0) == 3


def test_a_machine_that_stood_when_last_watched_is_held_until_then_and_no_longer() -> None:
    open_stay = stood(0.0, 100.0, end=None)
    assert depth([open_stay, refused(100.0)], 150.0) == 1
    assert depth([open_stay, refused(101.0)], 150.0) == 0


@given(STAYS, st.floats(0, 20 * H))
def test_one_more_refusal_now_caps_the_depth_at_what_is_held_now(stays: list[Stay], now_s: float) -> None:
    past = [stay for stay in stays if stay.asked_at_s <= now_s and stay.until_s <= now_s and stay.end is not None]
    assert depth([*past, refused(now_s)], now_s) == 0
    assert depth([*past, stood(now_s, now_s + H, None), refused(now_s)], now_s) == 1


@given(STAYS, st.floats(0, 20 * H))
def test_one_more_machine_never_lowers_the_depth(stays: list[Stay], now_s: float) -> None:
    before = depth(stays, now_s)
    after = depth([*stays, stood(0.0, 30 * H)], now_s)
    assert (before is None) == (after is None)
    assert before is None or after is None or after == before + 1


def test_a_listed_stock_and_a_learned_depth_both_bind() -> None:
    stays = [stood(0.0, 9 * H), stood(0.0, 9 * H), refused(100.0)]
    learn = [with_experience((offer(stock=stock),), stays, CALIBRATION, 200.0)[0].stock for stock in (1, 5, None)]
    assert learn == [1, 2, 2]


def test_a_launch_that_succeeded_proves_the_pool_and_a_refusal_does_not() -> None:
    (proven,) = with_experience((offer(proven=False),), [worked(1.0)], CALIBRATION, 0.0)
    (still,) = with_experience((offer(proven=False),), [refused(0.0)], CALIBRATION, 0.0)
    assert proven.proven and not still.proven
    assert proven_pools([worked(1.0), refused(0.0)]) == {POOL}


def test_machines_on_demand_have_no_interruption_rate_but_a_start_up() -> None:
    (learned,) = with_experience((offer(tenure=Tenure.ON_DEMAND),), [worked(1.0, End.TAKEN)], CALIBRATION, 0.0)
    assert learned.interruptions_per_hour is None
    assert learned.startup_s is not None
