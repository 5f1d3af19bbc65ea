from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexcloud.adapters.files import catalog_root
from hexcloud.adapters.markets.snapshot import SnapshotMarket
from hexcloud.adapters.markets.trace import Trace, TraceEvent, TraceKind, TraceMarket, load_trace
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.market import Market
from hexcloud.domain.offer import OfferId
from hexcloud.ports import MarketSource

MakeTrace = Callable[..., Trace]
ORIGIN_S = 1_785_000_000.0
HOUR = 3600.0
SPOT = OfferId("nebius/eu-north1/-/gpu-h100-sxm_8gpu-128vcpu-1600gb/spot")
HEADER = "at_h,event,offer,usd_per_hour,count\n"


@pytest.fixture(scope="module")
def source() -> MarketSource:
    return SnapshotMarket(("nebius",))


@pytest.fixture
def trace(tmp_path: Path) -> MakeTrace:
    """Make a trace of lines."""

    def make(*lines: str) -> Trace:
        path = tmp_path / "mine.csv"
        path.write_text(HEADER + "".join(f"{line}\n" for line in lines))
        return load_trace(str(path))

    return make


def price(market: Market, offer_id: OfferId = SPOT) -> float:
    offer = market.offer(offer_id)
    assert offer is not None
    return offer.usd_per_hour


def test_nothing_has_changed_before_the_first_event(source: MarketSource, trace: MakeTrace) -> None:
    played = TraceMarket(source, trace("1.0,price,nebius/*/spot,x2,"), ORIGIN_S)
    assert played.market(ORIGIN_S + HOUR - 1) == source.market(ORIGIN_S + HOUR - 1)


def test_a_factor_multiplies_the_sources_price_and_says_when(source: MarketSource, trace: MakeTrace) -> None:
    market = TraceMarket(source, trace("1.0,price,nebius/*/spot,x1.6,"), ORIGIN_S).market(ORIGIN_S + 2 * HOUR)
    assert price(market) == pytest.approx(1.6 * 10.0)
    offer = market.offer(SPOT)
    assert offer is not None
    assert offer.as_of.timestamp() == ORIGIN_S + HOUR
    assert offer.source == "trace mine"


def test_a_number_is_the_price_itself_and_the_latest_event_wins(source: MarketSource, trace: MakeTrace) -> None:
    lines = (f"3,price,{SPOT},12.5,", "1,price,nebius/*/spot,x1.6,", f"2,price,{SPOT},x3,")
    played = TraceMarket(source, trace(*lines), ORIGIN_S)
    assert [price(played.market(ORIGIN_S + hours * HOUR)) for hours in (0, 1, 2, 3)] == [10.0, 16.0, 30.0, 12.5]


def test_events_touch_only_what_they_name(source: MarketSource, trace: MakeTrace) -> None:
    played = TraceMarket(source, trace("0,price,nebius/*/spot,x9,"), ORIGIN_S).market(ORIGIN_S)
    plain = source.market(ORIGIN_S)
    for before, after in zip(plain.offers, played.offers, strict=True):
        assert (after == before) == (before.tenure == "on_demand")


def test_a_sold_out_pool_has_no_stock_until_it_is_back(source: MarketSource, trace: MakeTrace) -> None:
    played = TraceMarket(source, trace("1,sold_out,nebius/*/spot,,", "2,back,nebius/*/spot,,"), ORIGIN_S)
    stocks = []
    for hours in (0.0, 1.5, 2.0):
        offer = played.market(ORIGIN_S + hours * HOUR).offer(SPOT)
        assert offer is not None
        stocks.append(offer.stock)
    assert stocks == [None, 0, None]


def test_each_preemption_is_seen_once_by_whoever_asks_in_turns(trace: MakeTrace) -> None:
    played = trace("0,preempt,*/spot,,", "0.5,preempt,*/spot,,2", "0.5,price,*/spot,x2,")
    turns = [played.preemptions(at - 600, at) for at in range(0, 3600, 600)]
    assert [event.count for turn in turns for event in turn] == [1, 2]


@settings(max_examples=100, deadline=None)
@given(
    at=st.lists(st.integers(0, 50), max_size=8),
    cuts=st.lists(st.integers(0, 60), max_size=6),
)
def test_however_time_is_cut_no_preemption_is_missed_or_doubled(at: list[int], cuts: list[int]) -> None:
    events = tuple(TraceEvent(at_s=float(s), kind=TraceKind.PREEMPT, offer="*") for s in sorted(at))
    played = Trace(name="t", events=events)
    edges = sorted({-1, 60, *cuts})
    seen = [event for a, b in pairwise(edges) for event in played.preemptions(a, b)]
    assert sorted(event.at_s for event in seen) == sorted(map(float, at))


def test_an_event_that_meets_no_offer_is_a_finding(source: MarketSource, trace: MakeTrace) -> None:
    market = TraceMarket(source, trace("1,price,nebuis/*/spot,x2,"), ORIGIN_S).market(ORIGIN_S)
    assert [found.row for found in market.findings if found.source == "trace mine"] == ["nebuis/*/spot"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1,prise,*,x2,", "line 2: event 'prise' is unknown; did you mean price"),
        ("soon,price,*,x2,", "line 2: at_h is 'soon'"),
        ("-1,price,*,x2,", "line 2: at_h is '-1'"),
        ("nan,price,*,x2,", "line 2: at_h is 'nan'"),
        ("1,price,*,0,", "line 2: usd_per_hour is 0"),
        ("1,price,*,xx,", "line 2: usd_per_hour is 'x'"),
        ("1,price,*,,", "line 2: usd_per_hour belongs to price events"),
        ("1,sold_out,*,2,", "line 2: usd_per_hour belongs to price events"),
        ("1,preempt,*,,1.5", "line 2: count is '1.5'"),
        ("1,preempt,,,1", "line 2: offer is missing"),
        ("1,preempt", "line 2: 2 columns instead of 5"),
    ],
)
def test_a_wrong_line_is_named(trace: MakeTrace, line: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        trace(line)


def test_comments_and_blank_lines_are_skipped_and_lines_keep_their_numbers(trace: MakeTrace) -> None:
    assert len(trace("# why", "", "1,back,*,,").events) == 1
    with pytest.raises(ConfigError, match="line 4"):
        trace("# why", "", "1,bak,*,,")


def test_a_misspelt_name_names_the_likely_trace() -> None:
    with pytest.raises(ConfigError, match="trace 'clam' is unknown; did you mean calm"):
        load_trace("clam")


def test_a_wrong_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_text("at,event\n1,back\n")
    with pytest.raises(ConfigError, match="the first line must be at_h,event,offer,usd_per_hour,count"):
        load_trace(str(path))


@pytest.mark.parametrize("name", sorted(path.stem for path in (catalog_root() / "traces").glob("*.csv")))
def test_every_bundled_trace_is_right_and_meets_offers(name: str) -> None:
    played = TraceMarket(SnapshotMarket(), load_trace(name), ORIGIN_S).market(ORIGIN_S + 24 * HOUR)
    assert [found for found in played.findings if found.source.startswith("trace")] == []


def test_the_calm_trace_changes_nothing() -> None:
    assert load_trace("calm").events == ()
