"""The market as it is believed, and the questions that a person or a plan asks of its sources."""

import time
from typing import TYPE_CHECKING

from hexcloud.domain.errors import ConfigError
from hexcloud.wiring.places import factors_file, open_prices, open_store, store_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hexcloud.adapters.markets.snapshot import SnapshotMarket
    from hexcloud.adapters.markets.sources import PriceQuestion
    from hexcloud.adapters.markets.stored import StoredMarket
    from hexcloud.controller.experience import Experience
    from hexcloud.controller.needs import CloudNeeds
    from hexcloud.controller.refresh import Facts, PartReport
    from hexcloud.domain.calibration import Factor
    from hexcloud.domain.offer import Offer, OfferId
    from hexcloud.ports import MarketSource


def believed_market(clouds: tuple[str, ...] = ()) -> "MarketSource":
    """Return the bundled snapshot with what refreshes brought over it. Raises ConfigError for an unknown cloud."""
    return _stored(clouds) if store_file().exists() else _snapshot(clouds)


def _stored(clouds: tuple[str, ...] = ()) -> "StoredMarket":
    from hexcloud.adapters.markets.stored import StoredMarket

    return StoredMarket(_snapshot(), open_prices(), clouds, learn=_experience())


def _snapshot(clouds: tuple[str, ...] = ()) -> "SnapshotMarket":
    """Return the bundled market, with the speeds that were measured here."""
    from hexcloud.adapters.markets.snapshot import SnapshotMarket

    return SnapshotMarket(clouds, factors=measured_factors())


def measured_factors() -> "tuple[Factor, ...]":
    """Return the speeds that `hexcloud profile` has measured here."""
    from hexcloud.adapters.files import load_factors

    return load_factors(factors_file())


def _experience() -> "Experience":
    """Return what our own fleet learned of its pools: runs on real clouds, whose run clock is the real one."""
    from hexcloud.adapters.files import load_calibration
    from hexcloud.controller.experience import Experience

    return Experience(open_store(), load_calibration(), time.time)


def refresh_prices(question: "PriceQuestion") -> "Iterator[PartReport]":
    """Ask, judge and keep; yield a report per region. Raises ConfigError, MarketError and StoreError.

    For a question with past days, a source that answered and remembers them is asked for these too: a report more.
    """
    from hexcloud.adapters.markets.sources import now, price_sources
    from hexcloud.controller.recall import recall
    from hexcloud.controller.refresh import refresh
    from hexcloud.ports import PastSource

    sources, facts, prices = price_sources(question), price_facts(), open_prices()
    for source in sources:
        answered = False
        for report in refresh(source, prices, facts, now, every_region=not question.regions):
            answered = answered or not report.problem
            yield report
        if answered and question.past_days is not None and isinstance(source, PastSource):
            yield from recall(source, prices, facts, question.past_days)


def price_facts() -> "Facts":
    """Return what the gate compares a price with, beside the memory of prices. Raises ConfigError, MarketError."""
    from hexcloud.adapters.files import load_odd_counts, load_usual
    from hexcloud.controller.refresh import Facts
    from hexcloud.estimate.pools import proven_pools

    return Facts(
        usual_usd_per_gpu_hour=load_usual(),
        usd_per_unit=rates(),
        odd_counts=load_odd_counts(),
        offers=_snapshot().market(time.time()).offers,
        proven=proven_pools(_experience().stays()),
    )


def rates() -> dict[str, float]:
    """Return USD for one unit of each currency: the catalog's, and the user's over them."""
    from hexcloud.adapters.files import load_rates

    return {**load_rates(), **open_prices().rates()}


def evidence(offer_id: "OfferId") -> "tuple[tuple[Offer, str], ...]":
    """Return what every source says of an offer, the believed one first, and why each other one lost."""
    return _stored().evidence(offer_id, time.time())


def cloud_checks(cloud: str, needs: "CloudNeeds") -> "list[tuple[str, bool, str]]":
    """Ask a cloud for credentials, permissions and quota: (name, ok, found). Raises ConfigError for another cloud."""
    if cloud == "aws":
        from hexcloud.adapters.clouds.aws_checks import aws_checks

        return list(aws_checks(regions=needs.regions, needs=needs.quota_units, types=needs.types))
    if cloud == "gcp":
        from hexcloud.adapters.clouds.gcp_checks import gcp_checks

        return gcp_checks(regions=needs.regions, needs=needs.quota_units)
    raise ConfigError(f"--cloud {cloud}: only aws and gcp can be asked; other clouds are checked when they rent")
