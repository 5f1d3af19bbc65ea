"""The believed market: the bundle with what refreshes brought over it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hexcloud.adapters.markets.snapshot import SnapshotMarket
from hexcloud.adapters.markets.stored import StoredMarket
from hexcloud.adapters.store import SqlitePrices
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.market import Market, Outcome, Quota
from hexcloud.domain.offer import Offer
from hexcloud.domain.row import Belief, Part, Row

NOW = datetime(2026, 11, 1, tzinfo=UTC)


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


def answer(prices: SqlitePrices, *rows: Row, quotas: tuple[Quota, ...] = ()) -> None:
    first = rows[0]
    part = Part(source="live", cloud=first.cloud, region=first.region, as_of=NOW, quotas=quotas)
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
    assert market.quotas == (Quota(key="nebius/gpus", left=8),)
    elsewhere = [offer for offer in base.market(now_s).offers if offer.region != "eu-north1"]
    assert [offer for offer in market.offers if offer.region != "eu-north1"] == elsewhere


def test_a_row_under_doubt_leaves_the_older_price_standing(base: SnapshotMarket, prices: SqlitePrices) -> None:
    before = of(base.market(NOW.timestamp()), "nebius", "eu-north1")
    doubt = Belief(
        row=row(before[1], 0.01), outcome=Outcome.QUARANTINE, rule="far_too_cheap", field="price", reason="!"
    )
    part = Part(source="live", cloud="nebius", region="eu-north1", as_of=NOW)
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


def test_a_price_in_another_currency_follows_the_rate(base: SnapshotMarket, prices: SqlitePrices) -> None:
    offer = of(base.market(NOW.timestamp()), "nebius", "eu-north1")[0]
    euros = Belief(row=row(offer, 10.0, currency="EUR"), outcome=Outcome.ACCEPT, usd_per_unit=1.0)
    prices.save_part(Part(source="live", cloud="nebius", region="eu-north1", as_of=NOW), (euros,))
    prices.save_rate("EUR", 1.2, 5.0)
    (left,) = of(StoredMarket(base, prices).market(NOW.timestamp()), "nebius", "eu-north1")
    assert left.usd_per_hour == pytest.approx(12.0)
    assert left.list_price == pytest.approx(10.0)


def test_what_the_fleet_learned_is_put_on_the_offers(base: SnapshotMarket, prices: SqlitePrices) -> None:
    def slow(offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
        return tuple(offer.model_copy(update={"startup_s": 77.0}) for offer in offers)

    market = StoredMarket(base, prices, learn=slow).market((NOW + timedelta(hours=1)).timestamp())
    assert {offer.startup_s for offer in market.offers} == {77.0}
