"""AwsMarket: prices, machines and limits from AWS's own interfaces, region by region.

Implements PriceSource and PastSource.
"""

from collections.abc import Callable, Iterator, Mapping, Sized
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import TypeVar

from hexcloud.adapters.clouds import aws_answers as answers
from hexcloud.adapters.clouds.aws import EVERYWHERE, AwsAccount, AwsRegion, Patience
from hexcloud.adapters.clouds.aws_answers import ListPrice, Machine, SpotPrice
from hexcloud.adapters.clouds.aws_errors import AwsError, Why
from hexcloud.adapters.markets.aws_part import AWS, Said, currency_of, part_of
from hexcloud.adapters.markets.threads import each
from hexcloud.domain.offer import Tenure, offer_id
from hexcloud.domain.prices import PastPart, PastPrice
from hexcloud.domain.row import Part

WORKERS = 8
"""Regions read at the same time. AWS limits calls per region, so one more thread slows no other region down."""
SCORED_TYPES = 8
"""Placement scores are asked for so many machines a region: AWS allows few different questions a day."""
KEPT_DAYS = 90
"""AWS keeps spot prices for so long."""
T = TypeVar("T")
Found = TypeVar("Found", bound=Sized)


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

    @property
    def kept_days(self) -> float:
        """Return how many days of spot prices AWS keeps."""
        return KEPT_DAYS

    def past(self, days: float) -> Iterator[PastPart]:
        """Yield each region's spot prices of the last days (at most 90), as it arrives. Never raises, as `fetch`."""
        yield from self._over_regions(lambda region: self._past(region, min(days, KEPT_DAYS)), self._past_failed)

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

    def _past(self, region: AwsRegion, days: float) -> PastPart:
        nothing = self._past_failed(region.name, "")
        zone_ids = some(answers.zones(region.zones()), region, "DescribeAvailabilityZones")
        if not _offerings(region):
            return nothing
        machines = _machines(region)
        spot = _spot(region, machines, zone_ids, nothing.as_of - timedelta(days=days))
        prices = tuple(_past_price(region.name, price) for price in spot if price.instance_type in machines)
        gpus = {name: (machine.gpu, machine.gpu_count) for name, machine in machines.items()}
        return nothing.model_copy(update={"prices": prices, "gpus": gpus})

    def _past_failed(self, region: str, problem: str) -> PastPart:
        return PastPart(
            source=AWS.name,
            cloud="aws",
            region=region,
            as_of=self._now(),
            currency=currency_of(region),
            problem=problem,
        )


def ask(region: AwsRegion, now: datetime) -> Said:
    """Ask a region for all there is to know. Raises AwsError when a part of it fails or is empty: half is no answer.

    But what the account is not allowed to ask leaves the rest as it is: limits, and prices on demand.
    """
    zones = region.zones()
    zone_ids = some(answers.zones(zones), region, "DescribeAvailabilityZones")
    limits = _if_allowed(lambda: some(answers.limits(region.quotas()), region, "ListServiceQuotas"))
    offerings = _offerings(region)
    if not offerings:
        return Said(region=region.name, zone_ids=zone_ids, limits=limits)
    machines = _machines(region)
    spot = _spot(region, machines, zone_ids, now)
    return Said(
        region=region.name,
        machines=machines,
        zone_ids=zone_ids,
        ordinary_zones=answers.ordinary_zones(zones),
        offerings=offerings,
        spot=spot,
        on_demand=_on_demand(region),
        limits=limits,
        reservations=() if limits is None else tuple(region.instances()),
        scores=_scores(region, machines, spot),
    )


def some(found: Found, region: AwsRegion, operation: str) -> Found:
    """Return it, unless nothing is there: an empty answer must not wipe out what is known."""
    if not found:
        said = "the answer is empty; the last prices stand. Try again, or leave the region out"
        raise AwsError(f"{region.name}, {operation}", said, Why.EMPTY)
    return found


def _on_demand(region: AwsRegion) -> dict[str, ListPrice] | None:
    """Return the region's price list; None when this account may not ask for it.

    The list of a region with accounts of its own is kept by another partition, which does not know them.
    """
    elsewhere = (Why.CREDENTIALS, Why.SILENT) if region.is_cut_off else ()
    return _if_allowed(
        lambda: some(answers.on_demand_prices(region.products()), region, "GetProducts"), (Why.DENIED, *elsewhere)
    )


def _if_allowed(ask_for: Callable[[], Found], refusals: tuple[Why, ...] = (Why.DENIED,)) -> Found | None:
    try:
        return ask_for()
    except AwsError as error:
        if error.why in refusals:
            return None
        raise


def _offerings(region: AwsRegion) -> frozenset[tuple[str, str]]:
    """Return (instance type, zone id) of the accelerators; none only in a region that is known to have others."""
    offerings = answers.offerings(region.offerings())
    if not offerings:
        some(region.offerings(EVERYWHERE), region, "DescribeInstanceTypeOfferings")
    return offerings


def _past_price(region: str, price: SpotPrice) -> PastPrice:
    name = offer_id("aws", region, price.zone, price.instance_type, Tenure.SPOT)
    return PastPrice(name, price.at_s, price.price)


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
