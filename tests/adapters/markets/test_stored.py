"""The believed market: the bundle with what refreshes brought over it."""

import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from hexcloud.adapters.markets.snapshot import SnapshotMarket
from hexcloud.adapters.markets.stored import StoredMarket
from hexcloud.adapters.store import SqlitePrices
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.market import Market, Outcome, Quota
from hexcloud.domain.offer import Offer, Tenure
from hexcloud.domain.prices import PriceBook
from hexcloud.domain.row import Belief, Part, Row

NOW = datetime(2026, 11, 1, tzinfo=UTC)
T = TypeVar("T")


@pytest.fixture(scope="module")
def base() -> SnapshotMarket:
    return SnapshotMarket()


@pytest.fixture
def prices(tmp_path: Path) -> Iterator[SqlitePrices]:
    prices = SqlitePrices(tmp_path / "hexcloud.db")
    yield prices
    prices.close()


def row(offer: Offer, price: float, **odd: Any) -> Row:
    facts: dict[str, Any] = {
        name: getattr(offer, name)
        for name in ("cloud", "region", "zone", "instance_type", "gpu", "gpu_count", "vcpus", "memory_gib")
    }
    facts |= {"tenure": offer.tenure.value, "network_gb_per_s": offer.network_gb_per_s, "source": "live"}
    return Row(**{**facts, "price": price, "as_of": NOW.isoformat(), **odd})


def answer(prices: SqlitePrices, *rows: Row, **odd: Any) -> None:
    first = rows[0]
    facts: dict[str, Any] = {"source": first.source, "cloud": first.cloud, "region": first.region, "as_of": NOW}
    part = Part(**{**facts, "complete": first.source == "live", **odd})
    prices.save_part(part, tuple(Belief(row=one, outcome=Outcome.ACCEPT) for one in rows))


def of(market: Market, cloud: str, region: str) -> list[Offer]:
    return [offer for offer in market.offers if (offer.cloud, offer.region) == (cloud, region)]


def test_without_a_refresh_it_is_the_bundle(base: SnapshotMarket, prices: SqlitePrices) -> None:
    now_s = NOW.timestamp()
    assert StoredMarket(base, prices).market(now_s).offers == base.market(now_s).offers


def test_a_live_price_wins_and_what_its_region_no_longer_lists_goes(base: SnapshotMarket, prices: SqlitePrices) -> None:
    now_s = NOW.timestamp()
    before = of(base.market(now_s), "nebius", "eu-north1")
    assert len(before) > 1
    answer(prices, row(before[0], 9.99), quotas=(Quota(key="nebius/gpus", left=8),))
    market = StoredMarket(base, prices).market(now_s)
    (left,) = of(market, "nebius", "eu-north1")
    assert (left.usd_per_hour, left.source, left.as_of) == (9.99, "live", NOW)
    assert market.quotas == (Quota(key="nebius/gpus", left=8, as_of=NOW),)
    elsewhere = [offer for offer in base.market(now_s).offers if offer.region != "eu-north1"]
    assert [offer for offer in market.offers if offer.region != "eu-north1"] == elsewhere


def test_a_row_under_doubt_leaves_the_older_price_standing(base: SnapshotMarket, prices: SqlitePrices) -> None:
    before = of(base.market(NOW.timestamp()), "nebius", "eu-north1")
    doubt = Belief(
        row=row(before[1], 0.01), outcome=Outcome.QUARANTINE, rule="far_too_cheap", field="price", reason="!"
    )
    part = Part(source="live", cloud="nebius", region="eu-north1", as_of=NOW, complete=True)
    prices.save_part(part, (Belief(row=row(before[0], 9.99), outcome=Outcome.ACCEPT), doubt))
    market = StoredMarket(base, prices).market(NOW.timestamp())
    assert {offer.id for offer in of(market, "nebius", "eu-north1")} == {before[0].id, before[1].id}
    assert any(finding.rule == "far_too_cheap" for finding in market.findings)


def test_a_refresh_is_seen_at_once_and_only_these_clouds_are_offered(
    base: SnapshotMarket, prices: SqlitePrices
) -> None:
    source = StoredMarket(base, prices, ("nebius",))
    first = source.market(NOW.timestamp())
    assert {offer.cloud for offer in first.offers} == {"nebius"}
    answer(prices, row(first.offers[0], 9.99))
    assert any(offer.usd_per_hour == 9.99 for offer in source.market(NOW.timestamp()).offers)


def test_a_cloud_that_only_a_refresh_knows_can_be_asked_for(base: SnapshotMarket, prices: SqlitePrices) -> None:
    with pytest.raises(ConfigError, match="azure"):
        StoredMarket(base, prices, ("azure",))
    any_offer = base.market(NOW.timestamp()).offers[0]
    answer(prices, row(any_offer, 9.99, cloud="azure", region="eastus", zone=None))
    market = StoredMarket(base, prices, ("azure",)).market(NOW.timestamp())
    assert [offer.region for offer in market.offers] == ["eastus"]


def test_a_cloud_whose_rows_all_wait_is_known_all_the_same(base: SnapshotMarket, prices: SqlitePrices) -> None:
    any_offer = base.market(NOW.timestamp()).offers[0]
    answer(prices, row(any_offer, 9.99, cloud="azure", region="eastus", zone=None))
    waits = row(any_offer, 0.01, cloud="azure", region="eastus", zone=None)
    doubt = Belief(row=waits, outcome=Outcome.QUARANTINE, rule="step", field="price", reason="!")
    later = Part(source="live", cloud="azure", region="eastus", as_of=NOW + timedelta(hours=1))
    prices.save_part(later, (doubt,))
    assert StoredMarket(base, prices, ("azure",)).market(NOW.timestamp()).offers


def test_a_price_in_another_currency_follows_the_rate(base: SnapshotMarket, prices: SqlitePrices) -> None:
    offer = of(base.market(NOW.timestamp()), "nebius", "eu-north1")[0]
    euros = Belief(row=row(offer, 10.0, currency="EUR"), outcome=Outcome.ACCEPT, usd_per_unit=1.0)
    part = Part(source="live", cloud="nebius", region="eu-north1", as_of=NOW, complete=True)
    prices.save_part(part, (euros,))
    prices.save_rate("EUR", 1.2, 5.0)
    (left,) = of(StoredMarket(base, prices).market(NOW.timestamp()), "nebius", "eu-north1")
    assert left.usd_per_hour == pytest.approx(12.0)
    assert left.list_price == pytest.approx(10.0)


def test_what_the_fleet_learned_is_put_on_the_offers(base: SnapshotMarket, prices: SqlitePrices) -> None:
    def slow(offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
        return tuple(offer.model_copy(update={"startup_s": 77.0}) for offer in offers)

    market = StoredMarket(base, prices, learn=slow).market((NOW + timedelta(hours=1)).timestamp())
    assert {offer.startup_s for offer in market.offers} == {77.0}


def test_a_file_that_names_one_machine_says_nothing_of_the_others(base: SnapshotMarket, prices: SqlitePrices) -> None:
    now_s = NOW.timestamp()
    before = of(base.market(now_s), "nebius", "eu-north1")
    answer(prices, row(before[0], 9.99, source="list"))
    market = StoredMarket(base, prices).market(now_s)
    assert [offer.id for offer in of(market, "nebius", "eu-north1")] == [offer.id for offer in before]
    assert [offer.usd_per_hour for offer in of(market, "nebius", "eu-north1")].count(9.99) == 1


def p5_in_virginia(market: Market, tenure: Tenure) -> list[Offer]:
    wanted = ("us-east-1", "p5.48xlarge", tenure)
    return [offer for offer in market.offers if (offer.region, offer.instance_type, offer.tenure) == wanted]


def test_the_clouds_own_answer_closes_the_zones_that_it_does_not_list(
    base: SnapshotMarket, prices: SqlitePrices
) -> None:
    now_s = NOW.timestamp()
    bundled = p5_in_virginia(base.market(now_s), Tenure.SPOT)
    assert len(bundled) > 1, "the bundle lists several zones"
    first = bundled[0]
    dropped = row(first, 14.0, zone="use1-az9", source="list", as_of=(NOW - timedelta(days=9)).isoformat())
    answer(prices, dropped, row(first, 14.0, source="list", tenure="on_demand"), as_of=NOW - timedelta(days=9))
    answer(prices, row(first, 50.0), row(first, 55.0, tenure="on_demand"))
    market = StoredMarket(base, prices).market(now_s)
    assert [(offer.id, offer.usd_per_hour) for offer in p5_in_virginia(market, Tenure.SPOT)] == [(first.id, 50.0)]
    on_demand = p5_in_virginia(market, Tenure.ON_DEMAND)
    assert first.zone in {offer.zone for offer in on_demand}
    assert len(on_demand) >= len(p5_in_virginia(base.market(now_s), Tenure.ON_DEMAND)), "any zone will do"


def test_refreshes_of_regions_in_any_order_are_all_seen(base: SnapshotMarket, prices: SqlitePrices) -> None:
    """One moment for two regions, and then a list that is older than both: no clock of the data tells of news."""
    source = StoredMarket(base, prices)
    first, second = base.market(NOW.timestamp()).offers[0], base.market(NOW.timestamp()).offers[-1]
    assert (first.cloud, first.region) != (second.cloud, second.region)
    answer(prices, row(first, 41.0))
    assert [one.id for one in source.market(NOW.timestamp()).offers if one.usd_per_hour == 41.0] == [first.id]
    answer(prices, row(second, 42.0))
    assert [one.id for one in source.market(NOW.timestamp()).offers if one.usd_per_hour == 42.0] == [second.id]
    answer(prices, row(first, 43.0, source="list", region="elsewhere"), as_of=NOW - timedelta(days=1))
    assert [one.usd_per_hour for one in source.market(NOW.timestamp()).offers if one.region == "elsewhere"] == [43.0]


class Torn(SqlitePrices):
    """A store in which a refresh lands after whatever is read first."""

    def __init__(self, path: Path, refresh: Callable[[], None]) -> None:
        super().__init__(path)
        self._refresh = refresh
        self._landed = False

    def book(self) -> PriceBook:
        return self._then_lands(super().book())

    def current(self) -> tuple[Belief, ...]:
        return self._then_lands(super().current())

    def _then_lands(self, read: T) -> T:
        if not self._landed:
            self._landed = True
            self._refresh()
        return read


def test_a_refresh_in_the_middle_of_a_reading_empties_no_region(
    base: SnapshotMarket, prices: SqlitePrices, tmp_path: Path
) -> None:
    before = of(base.market(NOW.timestamp()), "nebius", "eu-north1")
    torn = Torn(tmp_path / "hexcloud.db", lambda: answer(prices, row(before[0], 9.99)))
    source = StoredMarket(base, torn)
    assert of(source.market(NOW.timestamp()), "nebius", "eu-north1") == before, "all of before"
    (left,) = of(source.market(NOW.timestamp()), "nebius", "eu-north1")
    assert left.usd_per_hour == 9.99, "all of after"
    torn.close()


def test_a_rate_that_makes_a_machine_far_too_cheap_is_a_finding_and_no_offer(
    base: SnapshotMarket, prices: SqlitePrices
) -> None:
    first = p5_in_virginia(base.market(NOW.timestamp()), Tenure.SPOT)[0]
    china = row(first, 400.0, region="cn-north-1", zone="cnn1-az1", tenure="on_demand", currency="CNY")
    part = Part(source="live", cloud="aws", region="cn-north-1", as_of=NOW)
    prices.save_part(part, (Belief(row=china, outcome=Outcome.ACCEPT, usd_per_unit=0.14),))
    source = StoredMarket(base, prices)
    assert [offer.usd_per_hour for offer in of(source.market(NOW.timestamp()), "aws", "cn-north-1")] == [
        pytest.approx(56.0)
    ]
    for rate, rule in ((0.00014, "far_too_cheap"), (math.inf, "unknown_currency")):
        prices.save_rate("CNY", rate, 0.0)
        market = source.market(NOW.timestamp())
        assert of(market, "aws", "cn-north-1") == []
        assert [finding.rule for finding in market.findings if finding.row == china.id] == [rule]
        assert source.evidence(china.id, NOW.timestamp()) == ()


def test_the_evidence_is_what_the_market_was_made_from(base: SnapshotMarket, prices: SqlitePrices) -> None:
    first, other, *_ = p5_in_virginia(base.market(NOW.timestamp()), Tenure.SPOT)
    euros = row(first, 50.0, currency="EUR")
    listed = Belief(row=euros, outcome=Outcome.ACCEPT, usd_per_unit=1.1)
    old = row(other, 12.0, source="list", as_of=(NOW - timedelta(days=9)).isoformat())
    answer(prices, old, as_of=NOW - timedelta(days=9))
    prices.save_part(Part(source="live", cloud="aws", region="us-east-1", as_of=NOW, complete=True), (listed,))
    prices.save_rate("EUR", 1.2, 0.0)
    source = StoredMarket(base, prices)
    market = source.market(NOW.timestamp())
    (wins, word), *lost = source.evidence(first.id, NOW.timestamp())
    assert (wins, word) == (market.offer(first.id), "wins")
    assert wins.usd_per_hour == pytest.approx(60.0), "at the rate in force"
    assert [(offer.source, reason.split()[0]) for offer, reason in lost] == [("skypilot-v8", "older")]
    assert source.evidence(other.id, NOW.timestamp()) == (), "nobody sells it any more"
    renewed = Belief(row=row(other, 51.0, as_of=NOW.isoformat()), outcome=Outcome.ACCEPT)
    later = Part(source="live", cloud="aws", region="us-east-1", as_of=NOW + timedelta(hours=1), complete=True)
    prices.save_part(later, (renewed,))
    assert source.evidence(first.id, NOW.timestamp()) == ()
    assert [reason.split()[0] for _, reason in source.evidence(other.id, NOW.timestamp())] == ["wins", "older", "older"]
