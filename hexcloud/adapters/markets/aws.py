"""AwsMarket: prices, machines and limits from AWS's own interfaces, region by region. Implements PriceSource."""

from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import TypeVar

from hexcloud.adapters.clouds import aws_answers as answers
from hexcloud.adapters.clouds.aws import EVERYWHERE, AwsAccount, AwsRegion, Patience
from hexcloud.adapters.clouds.aws_answers import Machine, SpotPrice
from hexcloud.adapters.clouds.aws_errors import AwsError, Why
from hexcloud.adapters.markets.aws_part import AWS, Said, currency_of, part_of
from hexcloud.adapters.markets.threads import each
from hexcloud.domain.row import Part

WORKERS = 8
"""Regions read at the same time. AWS limits calls per region, so one more thread slows no other region down."""
SCORED_TYPES = 8
"""Placement scores are asked for so many machines a region: AWS allows few different questions a day."""
KEPT_DAYS = 90
"""AWS keeps spot prices for so long."""
T = TypeVar("T")
Found = TypeVar("Found", bound=Sized)


@dataclass(frozen=True)
class SpotHistory:
    """The spot prices of one region over some days, oldest first; with a problem, none."""

    region: str
    currency: str
    prices: tuple[SpotPrice, ...] = ()
    problem: str = ""


class AwsMarket:
    """Reads AWS live. Regions: those asked for, else all that the account may use; `us-*` asks for some of these."""

    def __init__(
        self,
        regions: tuple[str, ...] | None,
        now: Callable[[], datetime],
        patience: Patience | None = None,
        workers: int = WORKERS,
    ) -> None:
        """Read `regions` (None or empty: all) when asked to; `now` dates the prices."""
        self._regions = tuple(dict.fromkeys(regions or ("*",)))
        self._now = now
        self._patience = patience or Patience()
        self._workers = workers

    def fetch(self) -> Iterator[Part]:
        """Yield the Part of each region as it arrives; one for region `*` when no region can be asked at all."""
        yield from self._over_regions(self._part, self._failed)

    def history(self, days: float = KEPT_DAYS) -> Iterator[SpotHistory]:
        """Yield each region's spot prices of the last days (at most 90), as it arrives. Never raises, as `fetch`."""

        def read(region: AwsRegion) -> SpotHistory:
            return self._spot_history(region, min(days, KEPT_DAYS))

        yield from self._over_regions(read, lambda name, why: SpotHistory(name, currency_of(name), problem=why))

    def _over_regions(self, read: Callable[[AwsRegion], T], failed: Callable[[str, str], T]) -> Iterator[T]:
        account = AwsAccount(self._patience)

        def attempt(name: str) -> T:
            try:
                return read(AwsRegion(account, name))
            except AwsError as error:
                return failed(name, str(error))

        try:
            regions = self._known_regions(account)
            limit_s = self._patience.region_s + self._patience.call_s
            late = f"not read within {limit_s:g} s, or not understood (see above); try again, or leave it out"
            for name, result in each(regions, attempt, self._workers, limit_s):
                yield result if result is not None else failed(name, f"AWS {name}: {late}")
        except AwsError as error:
            yield failed("*", str(error))
        finally:
            account.close()

    def _known_regions(self, account: AwsAccount) -> tuple[str, ...]:
        """Ask who we are, so that bad credentials are said once and not per region; then which regions there are."""
        home = AwsRegion(account, account.home_region(self._regions))
        try:
            home.identity()
        except AwsError as error:
            if error.why is Why.CREDENTIALS:
                raise
        if not any("*" in asked for asked in self._regions):
            return self._regions
        named = sorted({answers.text(answer, "RegionName") for answer in home.regions()} - {""})
        return self._asked_of(some(tuple(named), home, "DescribeRegions"))

    def _asked_of(self, known: tuple[str, ...]) -> tuple[str, ...]:
        plain = {asked for asked in self._regions if "*" not in asked}
        found = plain | {name for name in known if any(fnmatchcase(name, asked) for asked in self._regions)}
        if not found:
            raise AwsError("regions", f"none is called {', '.join(self._regions)}; the account has {', '.join(known)}")
        return tuple(sorted(found))

    def _part(self, region: AwsRegion) -> Part:
        as_of = self._now()
        return part_of(ask(region, as_of), as_of)

    def _failed(self, region: str, problem: str) -> Part:
        return Part(source=AWS.name, cloud="aws", region=region, as_of=self._now(), problem=problem)

    def _spot_history(self, region: AwsRegion, days: float) -> SpotHistory:
        since = self._now() - timedelta(days=days)
        zone_ids = some(answers.zones(region.zones()), region, "DescribeAvailabilityZones")
        prices = _spot(region, _machines(region), zone_ids, since)
        ordered = sorted(prices, key=lambda price: (price.at_s, price.instance_type, price.zone))
        return SpotHistory(region.name, currency_of(region.name), tuple(ordered))


def ask(region: AwsRegion, now: datetime) -> Said:
    """Ask a region for all there is to know. Raises AwsError when a part of it fails or is empty: half is no answer.

    A region without accelerators is told from an empty answer by machines that every region has.
    """
    zone_ids = some(answers.zones(region.zones()), region, "DescribeAvailabilityZones")
    limits = some(answers.limits(region.quotas()), region, "ListServiceQuotas")
    offerings = answers.offerings(region.offerings())
    if not offerings:
        some(region.offerings(EVERYWHERE), region, "DescribeInstanceTypeOfferings")
        return Said(region=region.name, zone_ids=zone_ids, limits=limits)
    machines = _machines(region)
    spot = _spot(region, machines, zone_ids, now)
    return Said(
        region=region.name,
        machines=machines,
        zone_ids=zone_ids,
        offerings=offerings,
        spot=spot,
        on_demand=some(answers.on_demand_prices(region.products()), region, "GetProducts"),
        limits=limits,
        reservations=tuple(region.instances()),
        scores=_scores(region, machines, spot),
    )


def some(found: Found, region: AwsRegion, operation: str) -> Found:
    """Return it, unless nothing is there: an empty answer must not wipe out what is known."""
    if not found:
        said = "the answer is empty; the last prices stand. Try again, or leave the region out"
        raise AwsError(f"{region.name}, {operation}", said, Why.EMPTY)
    return found


def _machines(region: AwsRegion) -> dict[str, Machine]:
    return some(answers.machines(region.instance_types()), region, "DescribeInstanceTypes")


def _spot(
    region: AwsRegion, machines: Mapping[str, Machine], zone_ids: Mapping[str, str], since: datetime
) -> tuple[SpotPrice, ...]:
    sold = tuple(sorted(name for name, machine in machines.items() if machine.is_spot))
    if not sold:
        return ()
    prices = answers.spot_prices(region.spot_prices(sold, since), zone_ids)
    return some(tuple(prices), region, "DescribeSpotPriceHistory")


def _scores(
    region: AwsRegion, machines: Mapping[str, Machine], spot: tuple[SpotPrice, ...]
) -> dict[tuple[str, str], int]:
    """Ask about the dearest machines, which are the scarce ones, until AWS refuses: nothing depends on a score."""
    cost = {price.instance_type: price.price for price in spot if price.instance_type in machines}
    dearest = sorted(cost, key=lambda name: (-cost[name] if cost[name] > 0 else 0.0, name))[:SCORED_TYPES]
    scores: dict[tuple[str, str], int] = {}
    try:
        for name in dearest:
            said = answers.placement_scores(region.placement_scores(name))
            scores.update({(name, zone): score for zone, score in said.items()})
    except AwsError:
        pass
    return scores
