"""The tables of SkyPilot's catalog, made from offers. A cell is text; an empty one says that nothing is known."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hexcloud.adapters.markets.skypilot_names import GpuNames
from hexcloud.adapters.markets.skypilot_rows import SOURCE, currency_of
from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.offer import Offer, Tenure

Cells = dict[str, str]

DISPLAY = {"aws": "AWS", "gcp": "GCP", "do": "DO", "ibm": "IBM", "oci": "OCI", "scp": "SCP", "runpod": "RunPod"}
"""How SkyPilot spells clouds in `common/accelerators.csv`, where it is not the name with a capital."""
SMALL_GIB = 48
DIGITS = 6
"""Decimals of a price."""
_CODES = {Tenure.ON_DEMAND: "OnDemandInstanceCode", Tenure.SPOT: "SpotInstanceCode"}


class Words(NamedTuple):
    """What SkyPilot calls things, and what it says of a GPU."""

    names: GpuNames
    gpus: Mapping[str, GpuSpec]

    def accelerator(self, offer: Offer) -> str:
        """Return SkyPilot's name of an offer's GPU."""
        return self.names.skypilot(offer.cloud, offer.instance_type, offer.gpu)

    def info(self, offer: Offer) -> str:
        """Return the GpuInfo cell: a Python dict as text, memory in MiB."""
        mib = round(self.gpus[offer.gpu].hbm_gib * 1024)
        gpu = {
            "Name": self.accelerator(offer),
            "Manufacturer": "NVIDIA",
            "Count": float(offer.gpu_count),
            "MemoryInfo": {"SizeInMiB": mib},
        }
        return str({"Gpus": [gpu], "TotalGpuMemoryInMiB": mib * offer.gpu_count})


class Sales:
    """Offers of one cloud by machine and zone: one on-demand price for a region, one spot price for a zone."""

    def __init__(self, offers: Iterable[Offer], has_zones: bool) -> None:
        """`has_zones`: SkyPilot asks this cloud zone by zone."""
        self._has_zones = has_zones
        self.machines: dict[tuple[str, str], list[Offer]] = defaultdict(list)
        """(region, instance type) -> its offers."""
        self._zones: dict[str, set[str]] = defaultdict(set)
        for offer in offers:
            self.machines[offer.region, offer.instance_type].append(offer)
            if offer.zone is not None:
                self._zones[offer.region].add(offer.zone)

    def zones(self, region: str, instance_type: str) -> list[str]:
        """Return where a machine is written: in its own zones; one that is listed for the region only, in all.

        A zone that does not have it says so when it is asked, and SkyPilot tries the next one. Nowhere when we know no
        zone of the region, since there it could never be launched. One empty text on a cloud without zones.
        """
        own = {offer.zone for offer in self.machines[region, instance_type] if offer.zone is not None}
        return sorted(own or self._zones[region]) or ([] if self._has_zones else [""])

    def nowhere(self) -> list[Offer]:
        """Return the offers that are written in no place."""
        lost = [found for at, found in self.machines.items() if not self.zones(*at)]
        return [offer for found in lost for offer in found]

    def on_demand(self, region: str, instance_type: str) -> float | None:
        """Return the region's one price: the freshest, and of equally fresh ones the dearest."""
        listed = [one for one in self.machines[region, instance_type] if one.tenure is Tenure.ON_DEMAND]
        newest = max(listed, key=lambda offer: (offer.as_of, offer.usd_per_hour), default=None)
        return listed_price(newest) if newest else None

    def spot(self, region: str, instance_type: str, zone: str) -> float | None:
        """Return the price in a zone, or the region's where one is listed for all of it."""
        listed = [one for one in self.machines[region, instance_type] if one.tenure is Tenure.SPOT]
        return next((listed_price(one) for one in listed if one.zone in (zone, None)), None)


def listed_price(offer: Offer) -> float | None:
    """Return the price per hour in the currency that the catalog has in the region, so that it is read as it is meant.

    None where that is neither the offer's own currency nor US dollars.
    """
    currency = currency_of(offer.cloud, offer.region)
    if currency == offer.currency:
        return offer.list_price
    return offer.usd_per_hour if currency == SOURCE.currency else None


def price_cell(price: float | None) -> str:
    """Write a price; nothing for none."""
    return "" if price is None else f"{price:.{DIGITS}f}".rstrip("0").rstrip(".")


def size_cells(offer: Offer) -> Cells:
    """Write vCPUs and memory; nothing for what is unknown (0)."""
    sizes = {"vCPUs": offer.vcpus, "MemoryGiB": offer.memory_gib}
    return {column: f"{size:g}" if size else "" for column, size in sizes.items()}


def cloud_table(sales: Sales, words: Words) -> list[Cells]:
    """Return the lines of `<cloud>/vms.csv`, for every cloud but Google's."""
    table = []
    for (region, instance_type), found in sorted(sales.machines.items()):
        machine = {
            "InstanceType": instance_type,
            "AcceleratorName": words.accelerator(found[0]),
            "AcceleratorCount": f"{found[0].gpu_count:.1f}",
            **size_cells(found[0]),
            "GpuInfo": words.info(found[0]),
            "Price": price_cell(sales.on_demand(region, instance_type)),
        }
        for zone in sales.zones(region, instance_type):
            spot = price_cell(sales.spot(region, instance_type, zone))
            place = {"Region": region, **({"AvailabilityZone": zone} if zone else {})}
            table.append({**machine, "SpotPrice": spot, **place})
    return table


def quota_table(offers: Iterable[Offer], key: str, words: Words) -> list[Cells]:
    """Return quota codes by `InstanceType` (as AWS has them) or by `Accelerator` (as Google Cloud has them)."""
    codes: dict[str, Cells] = {}
    for offer in offers:
        if offer.quota is not None:
            name = offer.instance_type if key == "InstanceType" else words.accelerator(offer)
            cells = codes.setdefault(name, {key: name, **dict.fromkeys(_CODES.values(), "")})
            cells[_CODES[offer.tenure]] = offer.quota.rsplit("/", 1)[-1]
    return [codes[name] for name in sorted(codes)]


def accelerators_table(offers: Iterable[Offer], words: Words) -> list[Cells]:
    """Return which clouds have which accelerator."""
    clouds: dict[str, set[str]] = defaultdict(set)
    for offer in offers:
        clouds[words.accelerator(offer)].add(DISPLAY.get(offer.cloud, offer.cloud.capitalize()))
    return [{"AcceleratorName": name, "Clouds": str(sorted(clouds[name]))} for name in sorted(clouds)]


def memory_table(offers: Iterable[Offer], words: Words) -> list[Cells]:
    """Return the memory of each accelerator as it is sold, whole GB; all GPUs of our catalog are NVIDIA's."""
    memory = {words.accelerator(offer): _sold_gb(words.gpus[offer.gpu].hbm_gib) for offer in offers}
    return [{"GPU": name, "MemoryGB": str(memory[name]), "Manufacturer": "NVIDIA"} for name in sorted(memory)]


def _sold_gb(usable_gib: float) -> int:
    """A card sold with 24 GB shows 22.35 GiB: small ones come in multiples of 8, large ones lose next to nothing."""
    return 8 * math.ceil(usable_gib / 8) if usable_gib <= SMALL_GIB else round(usable_gib)
