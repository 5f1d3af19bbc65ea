"""GcpMarket: Google Cloud's own prices, machine types and quotas, region by region. Implements PriceSource.

First come project, regions, zones and the price list, without which nothing can be said; then the regions, several at a
time, each with its zones' machine and accelerator types. A region that fails says so and leaves the others alone.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import TypeVar

from hexcloud.adapters.clouds.discreet import discreet
from hexcloud.adapters.clouds.gcp import GcpClient, Patience
from hexcloud.adapters.clouds.gcp_access import GcpAccess, open_access
from hexcloud.adapters.clouds.gcp_answers import QuotaLine, Region, Zone
from hexcloud.adapters.clouds.gcp_quotas import quotas_of
from hexcloud.adapters.markets.gcp_facts import GcpFacts, load_gcp_facts
from hexcloud.adapters.markets.gcp_rows import CLOUD, PriceTag, ZoneListing, content_of, rows_of
from hexcloud.adapters.markets.gcp_skus import PriceList, price_list
from hexcloud.adapters.markets.threads import each
from hexcloud.domain.errors import ConfigError, MarketError
from hexcloud.domain.row import Part, Per, Source

REGIONS_AT_ONCE = 8
"""Some 40 regions of 3 zones and 2 lists each: 240 calls, far under the 1,500 a minute that an account has."""

LATE = "was not read in time; refresh again later, or leave it out"
NOT_UNDERSTOOD = "gave an answer that hexcloud cannot handle, a fault of hexcloud (see above): please report it"


T = TypeVar("T")


@dataclass(frozen=True)
class _Opening:
    """What is the same for all regions."""

    client: GcpClient
    facts: GcpFacts
    regions: tuple[Region, ...]
    zones: dict[str, list[Zone]]
    """Region -> its zones."""
    over_all: tuple[QuotaLine, ...]
    prices: PriceList


class _Crashed:
    """Names whose reading ended in a fault of our own: not late, and not mended by asking again."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def noted(self, read: Callable[[str], T]) -> Callable[[str], T]:
        """Return the same reading, which notes a fault on its way up."""

        def noting(name: str) -> T:
            try:
                return read(name)
            except Exception:
                self._names.add(name)
                raise

        return noting

    def why(self, name: str) -> str:
        """Say why there is no answer."""
        return NOT_UNDERSTOOD if name in self._names else LATE


class GcpMarket:
    """Reads Compute Engine and Cloud Billing of one project."""

    def __init__(
        self,
        regions: tuple[str, ...],
        now: Callable[[], datetime],
        access: Callable[[], GcpAccess] = open_access,
        patience: Patience | None = None,
        currency: str = "USD",
    ) -> None:
        """Ask for these regions (empty: all; `*` in a name stands for anything); `now` dates the prices.

        Google lists prices in the `currency` it is asked for.
        """
        self.source = Source(name=CLOUD, lineage=CLOUD, per=Per.INSTANCE, currency=currency)
        self._wanted = regions
        self._access = access
        self._patience = patience or Patience()
        self._now = now

    def fetch(self) -> Iterator[Part]:
        """Yield the answer of each region as it arrives; a Part for `*` when nothing can be asked at all."""
        at, crashed = self._now(), _Crashed()
        (_, opening), *_ = each(("*",), crashed.noted(self._try_to_open), 1, self._patience.opening_s)
        if not isinstance(opening, _Opening):
            yield self._failed("*", at, opening or MarketError(f"Google Cloud {crashed.why('*')}"))
            return
        known = [region.name for region in opening.regions]
        for name in sorted({name for name in self._wanted if not any(fnmatchcase(one, name) for one in known)}):
            yield self._failed(name, at, MarketError(f"region {name!r} is not one of the project's; leave it out"))
        asked = {region.name: region for region in opening.regions if self._is_wanted(region.name)}

        def read(name: str) -> Part:
            return self._region(opening, asked[name], at)

        for name, part in each(tuple(asked), crashed.noted(read), REGIONS_AT_ONCE, self._patience.region_s):
            yield part or self._failed(name, at, MarketError(f"{name} {crashed.why(name)}"))

    def _is_wanted(self, region: str) -> bool:
        return not self._wanted or any(fnmatchcase(region, name) for name in self._wanted)

    def _try_to_open(self, _: str) -> _Opening | MarketError | ConfigError:
        try:
            return self._open()
        except (MarketError, ConfigError) as error:
            return error

    def _open(self) -> _Opening:
        facts = load_gcp_facts()
        client = GcpClient(self._access(), self._patience)
        regions = client.regions()
        if not regions:
            raise MarketError("regions: the answer is empty; check that the project may use Compute Engine")
        zones = defaultdict(list)
        for zone in client.zones():
            zones[zone.region].append(zone)
        over_all = client.global_quotas()
        prices = price_list(client.skus(self.source.currency), facts, self.source.currency)
        if not prices.prices:
            raise MarketError("price list: the answer has no price of a machine; refresh again later")
        return _Opening(client, facts, regions, dict(zones), over_all, prices)

    def _region(self, opening: _Opening, region: Region, at: datetime) -> Part:
        try:
            if region.warning:
                raise MarketError(
                    f"quotas of {region.name} are incomplete: {region.warning[:160]}; refresh again later"
                )
            zones = [self._zone(opening, zone) for zone in opening.zones.get(region.name, [])]
            self._check(region.name, zones)
        except MarketError as error:
            return self._failed(region.name, at, error)
        rows = rows_of(zones, PriceTag(region.name, opening.prices, opening.facts, self.source.currency, at))
        quotas = quotas_of(region.name, region.quotas, opening.over_all)
        return Part(
            source=self.source.name,
            cloud=CLOUD,
            region=region.name,
            as_of=at,
            rows=rows,
            quotas=quotas,
            content=content_of(rows),
            complete=True,
        )

    def _zone(self, opening: _Opening, zone: Zone) -> ZoneListing:
        machines = opening.client.machine_types(zone.name, opening.facts.asked_names)
        return ZoneListing(zone.name, zone.is_up, machines, opening.client.accelerator_types(zone.name))

    def _check(self, region: str, zones: list[ZoneListing]) -> None:
        """An empty list is an answer that failed, unless the region has no GPUs at all."""
        if not zones:
            raise MarketError(f"zones of {region}: the answer is empty; refresh again later")
        if any(zone.accelerators for zone in zones) and not any(zone.machines for zone in zones):
            raise MarketError(f"machine types of {region}: the answer is empty; refresh again later")
        if any(machine.accelerators for zone in zones for machine in zone.machines) and not any(
            zone.accelerators for zone in zones
        ):
            raise MarketError(f"accelerator types of {region}: the answer is empty; refresh again later")

    def _failed(self, region: str, at: datetime, error: MarketError | ConfigError) -> Part:
        problem = discreet(str(error))
        return Part(source=self.source.name, cloud=CLOUD, region=region, as_of=at, problem=problem)
