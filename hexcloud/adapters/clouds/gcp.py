"""GcpClient: what Compute Engine and Cloud Billing say, page by page, as plain values. A caller may use many threads.

Every call opens and closes its own connection: sessions of the client libraries are not safe to share between threads.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from google.api_core.retry import Retry
from google.cloud import billing_v1, compute_v1

from hexcloud.adapters.clouds.gcp_access import GcpAccess, Service
from hexcloud.adapters.clouds.gcp_answers import MachineType, QuotaLine, Region, Sku, Tier, Zone
from hexcloud.adapters.clouds.gcp_errors import Ask, is_passing, translated

COMPUTE_ENGINE = "services/6F81-5844-456A"
"""Its name in the price list."""
BILLED_GROUPS = frozenset({"CPU", "RAM", "GPU", "N1Standard", "LocalSSD"})
"""Resource groups of the price list that bill a running machine; all others are networks, licences, disks."""
GONE = frozenset({"DELETED", "OBSOLETE"})
MAX_PAGES = 1000
"""No honest list is longer: 30,000 SKUs are 6 pages."""
SKU_PAGE = 5000

T = TypeVar("T")


@dataclass(frozen=True)
class Patience:
    """How long one call may wait for an answer, and how long it is tried again when throttled or broken off."""

    call_s: float = 20.0
    retry_s: float = 30.0
    first_wait_s: float = 1.0
    region_s: float = 120.0
    """For all calls of one region: an answer that only trickles in never times out by itself."""
    opening_s: float = 240.0
    """For the lists that all regions need."""


@dataclass(frozen=True)
class GcpClient:
    """Reads; changes nothing. Every method raises MarketError with one line that says what to do."""

    access: GcpAccess
    patience: Patience = field(default_factory=Patience)

    def regions(self) -> tuple[Region, ...]:
        """Return the regions, each with the account's limits there."""
        with (
            translated(self._ask("regions", "compute.regions.list")),
            compute_v1.RegionsClient(**self._rest(Service.COMPUTE)) as client,
        ):
            request = compute_v1.ListRegionsRequest(project=self.access.project)
            found = _items(client.list(request, **self._limits()))
            return tuple(
                Region(name=one.name, quotas=_quotas(one.quotas), warning=one.quota_status_warning.message)
                for one in found
            )

    def zones(self) -> tuple[Zone, ...]:
        """Return the zones of all regions."""
        with (
            translated(self._ask("zones", "compute.zones.list")),
            compute_v1.ZonesClient(**self._rest(Service.COMPUTE)) as client,
        ):
            request = compute_v1.ListZonesRequest(project=self.access.project)
            found = _items(client.list(request, **self._limits()))
            return tuple(
                Zone(name=zone.name, region=zone.region.rsplit("/", 1)[-1], is_up=zone.status == "UP") for zone in found
            )

    def global_quotas(self) -> tuple[QuotaLine, ...]:
        """Return the account's limits over all regions."""
        with (
            translated(self._ask("project", "compute.projects.get")),
            compute_v1.ProjectsClient(**self._rest(Service.COMPUTE)) as client,
        ):
            return _quotas(client.get(project=self.access.project, **self._limits()).quotas)

    def machine_types(self, zone: str, names: str) -> tuple[MachineType, ...]:
        """Return the machine types of a zone whose whole name matches a regular expression (RE2)."""
        with (
            translated(self._ask(f"machine types of {zone}", "compute.machineTypes.list")),
            compute_v1.MachineTypesClient(**self._rest(Service.COMPUTE)) as client,
        ):
            request = compute_v1.ListMachineTypesRequest(
                project=self.access.project, zone=zone, filter=f'name eq "{names}"', max_results=500
            )
            found = _items(client.list(request, **self._limits()))
            return tuple(_machine_type(machine) for machine in found if machine.deprecated.state not in GONE)

    def accelerator_types(self, zone: str) -> dict[str, int]:
        """Return the accelerator types of a zone, each with the most that one machine may have."""
        with (
            translated(self._ask(f"accelerator types of {zone}", "compute.acceleratorTypes.list")),
            compute_v1.AcceleratorTypesClient(**self._rest(Service.COMPUTE)) as client,
        ):
            request = compute_v1.ListAcceleratorTypesRequest(project=self.access.project, zone=zone)
            found = _items(client.list(request, **self._limits()))
            return {accelerator.name: accelerator.maximum_cards_per_instance for accelerator in found}

    def skus(self, currency: str = "USD", most: int | None = None) -> tuple[Sku, ...]:
        """Return the lines of the price list that bill running machines, of the first `most` lines of any kind."""
        with (
            translated(self._ask("price list", "", "cloudbilling.googleapis.com")),
            billing_v1.CloudCatalogClient(transport="rest", **self._rest(Service.BILLING)) as client,
        ):
            request = billing_v1.ListSkusRequest(
                parent=COMPUTE_ENGINE, currency_code=currency, page_size=min(most or SKU_PAGE, SKU_PAGE)
            )
            lines = islice(_items(client.list_skus(request, **self._limits())), most)
            return tuple(_sku(line) for line in lines if line.category.resource_group in BILLED_GROUPS)

    def _ask(self, what: str, permission: str, api: str = "compute.googleapis.com") -> Ask:
        return Ask(what=what, api=api, permission=permission, project=self.access.project)

    def _rest(self, service: Service) -> dict[str, Any]:
        return {
            "credentials": self.access.credentials_for(service),
            "client_options": self.access.client_options(service),
        }

    def _limits(self) -> dict[str, Any]:
        retry = Retry(
            predicate=is_passing,
            initial=self.patience.first_wait_s,
            maximum=8 * self.patience.first_wait_s,
            timeout=self.patience.retry_s,
        )
        return {"retry": retry, "timeout": self.patience.call_s}


def _items(pager: Any) -> Iterable[Any]:
    """Yield what a list holds, over its pages, as raw messages: their wrappers are ten times slower to read."""
    seen: set[str] = set()
    for page in pager.pages:
        raw = type(page).pb(page)
        if raw.next_page_token in seen or len(seen) > MAX_PAGES:
            raise ValueError("a list without an end")
        seen.add(raw.next_page_token)
        yield from raw.skus if hasattr(raw, "skus") else raw.items


def _quotas(lines: Iterable[Any]) -> tuple[QuotaLine, ...]:
    return tuple(QuotaLine(metric=line.metric, limit=line.limit, usage=line.usage) for line in lines)


def _machine_type(machine: Any) -> MachineType:
    return MachineType(
        name=machine.name,
        vcpus=machine.guest_cpus,
        memory_mib=machine.memory_mb,
        accelerators=tuple((one.guest_accelerator_type, one.guest_accelerator_count) for one in machine.accelerators),
        local_ssd_partitions=machine.bundled_local_ssds.partition_count,
        description=machine.description,
    )


def _sku(line: Any) -> Sku:
    """The last entry of the time line of prices is the one that holds now."""
    expression = line.pricing_info[-1].pricing_expression if line.pricing_info else None
    return Sku(
        id=line.sku_id,
        description=line.description,
        regions=tuple(line.service_regions),
        usage_type=line.category.usage_type,
        unit=expression.usage_unit if expression else "",
        tiers=tuple(
            Tier(
                rate.start_usage_amount,
                rate.unit_price.units + rate.unit_price.nanos / 1e9,
                rate.unit_price.currency_code,
            )
            for rate in (expression.tiered_rates if expression else ())
        ),
    )
