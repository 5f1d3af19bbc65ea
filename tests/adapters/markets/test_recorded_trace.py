from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from hexcloud.adapters.markets.availability import Availability
from hexcloud.adapters.markets.open_trace import open_trace
from hexcloud.adapters.markets.recorded_trace import ALL, RecordedAvailability, RecordedPrices
from hexcloud.adapters.markets.snapshot import SnapshotMarket
from hexcloud.adapters.markets.trace import MarketTrace, TraceMarket
from hexcloud.adapters.provisioners.preemption import Preemptions
from hexcloud.appraise.history import Events, Standing, history_of
from hexcloud.appraise.known import Known
from hexcloud.appraise.series import judge
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.offer import Offer, OfferId
from hexcloud.simulator.clock import VirtualClock
from hexcloud.simulator.prices import SimMarket
from hexcloud.simulator.world import small_market

ORIGIN_S = 1_785_000_000.0
START_S = datetime(2023, 6, 1, tzinfo=UTC).timestamp()
HOUR_S = 3600.0
SPOT = OfferId("aws/us-east-1/a/8x-H100/spot")
REGIONAL = OfferId("gcp/us-central1/-/8x-A100/spot")
ZONAL = OfferId("gcp/us-central1/c/8x-A100/spot")


@pytest.fixture
def offers() -> dict[OfferId, Offer]:
    by_place = {(offer.cloud, offer.gpu, offer.tenure.value): offer for offer in small_market().offers}
    named = {SPOT: by_place["aws", "H100", "spot"], ZONAL: by_place["gcp", "A100", "spot"]}
    return {offer_id: offer.model_copy(update={"id": offer_id}) for offer_id, offer in named.items()}


def prices(*events: tuple[OfferId, float, float | None], offers: str = "*", start_h: float = 0.0) -> RecordedPrices:
    """Record prices at hours since START_S; None is listed without a price."""
    ids = (SPOT, REGIONAL)
    batch = Events(
        ids,
        np.array([ids.index(offer_id) for offer_id, _, _ in events], dtype=np.int64),
        np.array([START_S + hours * HOUR_S for _, hours, _ in events]),
        np.array([np.nan if price is None else price for _, _, price in events]),
        np.array([Standing.UNPRICED if price is None else 0 for _, _, price in events], dtype=np.int8),
    )
    judged = judge(history_of((batch,), is_snapshots=True), Known())
    return RecordedPrices("rec", judged, START_S + start_h * HOUR_S, offers)


def test_a_recorded_price_replaces_the_offers_own_and_says_when_it_was_true(offers: dict[OfferId, Offer]) -> None:
    played = prices((SPOT, 0, 20.0), (SPOT, 2, 22.0), (REGIONAL, 3, 10.0))
    seen = [played.price(offers[SPOT], hours * HOUR_S) for hours in (0, 1.5, 2, 2.5, 30)]
    assert [one and one.usd_per_hour for one in seen] == [20.0, 20.0, 22.0, 22.0, 22.0]
    assert [one and one.true_at_s / HOUR_S for one in seen] == [0, 1.5, 2, 2.5, 3]  # its age grows after the end


def test_the_run_may_begin_anywhere_in_the_recording(offers: dict[OfferId, Offer]) -> None:
    played = prices((SPOT, 0, 20.0), (SPOT, 2, 22.0), (REGIONAL, 3, 10.0), start_h=1.9)
    first, later = played.price(offers[SPOT], 0.0), played.price(offers[SPOT], 0.2 * HOUR_S)
    assert (first and first.usd_per_hour, later and later.usd_per_hour) == (20.0, 22.0)


def test_a_price_of_a_region_is_that_of_its_zones(offers: dict[OfferId, Offer]) -> None:
    price = prices((REGIONAL, 0, 10.0)).price(offers[ZONAL], 0.0)
    assert price is not None and price.usd_per_hour == 10.0


def test_what_is_recorded_without_a_price_is_sold_out_and_what_is_not_recorded_is_left_alone(
    offers: dict[OfferId, Offer],
) -> None:
    played = prices((SPOT, 0, 20.0), (SPOT, 1, None), (SPOT, 2, 21.0))
    assert [played.is_sold_out(SPOT, hours * HOUR_S) for hours in (0, 1, 1.5, 2)] == [False, True, True, False]
    price = played.price(offers[SPOT], 1.5 * HOUR_S)  # what runs there is billed by the last price
    assert price is not None and (price.usd_per_hour, price.true_at_s) == (20.0, HOUR_S)
    assert not played.is_sold_out(OfferId("lambda/x/-/y/spot"), 0.0)
    assert played.preemptions(0, 1e9) == ()


def test_an_offer_recorded_later_is_not_for_sale_before(offers: dict[OfferId, Offer]) -> None:
    played = prices((REGIONAL, 0, 10.0), (SPOT, 2, 20.0))
    assert played.price(offers[SPOT], HOUR_S) is None
    assert [played.is_sold_out(SPOT, hours * HOUR_S) for hours in (1, 2)] == [True, False]


def test_a_price_in_doubt_is_not_played_and_the_good_one_ages(offers: dict[OfferId, Offer]) -> None:
    played = prices((SPOT, 0, 20.0), (SPOT, 2, 90.0), (SPOT, 5, 20.0))
    price = played.price(offers[SPOT], 4 * HOUR_S)
    assert price is not None and (price.usd_per_hour, price.true_at_s) == (20.0, 2 * HOUR_S)


def test_a_pattern_names_the_offers_that_may_be_replaced(offers: dict[OfferId, Offer]) -> None:
    played = prices((SPOT, 0, 20.0), (REGIONAL, 0, 10.0), offers="gcp/*")
    assert played.price(offers[SPOT], 0.0) is None
    assert played.price(offers[ZONAL], 0.0) is not None
    assert played.unmet((offers[SPOT],)) == ("gcp/* of 2 recorded offers",)
    assert played.unmet(tuple(offers.values())) == ()


def availability(*counts: int, start_s: float = 0.0, offers: str = "aws/*/spot") -> RecordedAvailability:
    """Record a count every hour; equal ones in a row are for the reader of files to drop."""
    hours = np.arange(len(counts), dtype=np.float64) * HOUR_S
    return RecordedAvailability("rec", Availability(hours, np.array(counts), None), start_s, offers)


def test_an_empty_pool_is_sold_out_and_falls_take_machines_back() -> None:
    played = availability(0, 16, 9, 0, 3)
    assert [played.is_sold_out(SPOT, hours * HOUR_S) for hours in range(5)] == [True, False, False, True, False]
    assert not played.is_sold_out(REGIONAL, 0.0)
    fell = played.preemptions(-1.0, 10 * HOUR_S)
    assert [(event.at_s / HOUR_S, event.count) for event in fell] == [(2, 7), (3, ALL)]
    assert fell[0].touches(SPOT) and not fell[0].touches(REGIONAL)


def test_what_was_lost_before_the_run_began_is_not_lost_again() -> None:
    played = availability(5, 4, 3, 2, start_s=1.5 * HOUR_S)
    assert [event.at_s / HOUR_S for event in played.preemptions(-1e9, 1e9)] == [0.5, 1.5]


def test_a_pattern_that_meets_no_offer_is_told(offers: dict[OfferId, Offer]) -> None:
    assert availability(1, 0, offers="nebuis/*").unmet(tuple(offers.values())) == ("nebuis/*",)
    assert availability(1, 0).unmet(tuple(offers.values())) == ()


def test_the_emulated_cloud_takes_machines_by_the_recording(tmp_path: Path) -> None:
    played = Preemptions(tmp_path / "preempted.json", availability(3, 2, 0))
    alive = {NodeId(name): SPOT for name in "abc"}
    assert played.victims(0.0, alive) == ()
    assert played.victims(HOUR_S, alive) == ("a",)
    assert sorted(played.victims(2 * HOUR_S, alive)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "trace", [prices((SPOT, 0, 20.0), (SPOT, 2, 22.0)), availability(1, 0)], ids=["prices", "pool"]
)
def test_any_recording_plays_over_the_simulated_market_on_its_clock(trace: MarketTrace) -> None:
    clock = VirtualClock(run_s=ORIGIN_S)
    base = small_market()
    renamed = tuple(
        offer.model_copy(update={"id": SPOT}) if (offer.gpu, offer.tenure.value) == ("H100", "spot") else offer
        for offer in base.offers
    )
    market = TraceMarket(SimMarket(base.model_copy(update={"offers": renamed})), trace, clock.now_s())
    states = []
    for _ in range(3):
        offer = market.market(clock.now_s()).offer(SPOT)
        assert offer is not None
        states.append((offer.usd_per_hour, offer.stock))
        clock.sleep(HOUR_S)
    assert states in ([(20.0, None), (20.0, None), (22.0, None)], [(24.0, None), (24.0, 0), (24.0, 0)])


def test_seventeen_months_of_aws_play_over_the_bundled_catalog(spot_traces: Path) -> None:
    trace = open_trace(f"{spot_traces}/aws-catalog-2022-12_2024-05@2024-03-01")
    market = TraceMarket(SnapshotMarket(("aws",)), trace, ORIGIN_S).market(ORIGIN_S + 24 * HOUR_S)
    replaced = [offer for offer in market.offers if offer.source.startswith("trace")]
    assert len(replaced) > 100
    assert all(offer.as_of.timestamp() <= ORIGIN_S + 24 * HOUR_S for offer in replaced)
    assert {offer.tenure.value for offer in replaced} == {"spot", "on_demand"}
