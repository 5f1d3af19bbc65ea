"""The whole market: SkyPilot's catalog rows where they are at hand, else a made-up market of the same shape.

The rows are read from `$HEXCLOUD_SHARED_DATA/skypilot-catalog` (default: `shared/data` beside the repository). Rows
without a price, and GPU counts that no machine has, are left out; a GCP machine is its host row plus its GPU row.
"""

import csv
import os
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from hexcloud.adapters.files import load_calibration, load_gpus, load_network
from hexcloud.domain.market import EgressPrice, LinkScope, Market
from hexcloud.domain.offer import Offer, Tenure, offer_id

ROOT = Path(__file__).parents[2]
AS_OF = datetime(2026, 7, 1, tzinfo=UTC)
GPU_COUNTS = {1, 2, 4, 8, 16}
DEFAULT_GB_PER_S = 1.25
"""10 Gbit/s, for machines whose network nobody lists."""
_GPU_NAMES = {
    "A100": "A100-40GB",
    "A100-80GB-SXM": "A100-80GB",
    "H100-SXM": "H100",
    "RTXA6000": "A6000",
    "RTX-6000-Ada": "RTX6000-Ada",
}
_RUNPOD_NAMES = {"A100-80GB": "A100-80GB-PCIe", "H100": "H100-PCIe"}
_GCP_HOSTS = {
    ("A100", 1): "a2-highgpu-1g",
    ("A100", 2): "a2-highgpu-2g",
    ("A100", 4): "a2-highgpu-4g",
    ("A100", 8): "a2-highgpu-8g",
    ("A100", 16): "a2-megagpu-16g",
    ("A100-80GB", 1): "a2-ultragpu-1g",
    ("A100-80GB", 2): "a2-ultragpu-2g",
    ("A100-80GB", 4): "a2-ultragpu-4g",
    ("A100-80GB", 8): "a2-ultragpu-8g",
    ("H100", 8): "a3-highgpu-8g",
    ("L4", 1): "g2-standard-8",
    ("L4", 2): "g2-standard-24",
    ("L4", 4): "g2-standard-48",
    ("L4", 8): "g2-standard-96",
}
_GCP_DEFAULT_HOST = "n1-standard-16"
# What clouds outside the bundled catalog bill for traffic; general knowledge, enough for egress to count.
_EGRESS_USD_PER_GB = {
    "azure": (0.0, 0.01, 0.02, 0.087),
    "oci": (0.0, 0.0, 0.0085, 0.0085),
    "ibm": (0.0, 0.0, 0.02, 0.09),
}

Line = dict[str, str]


def shared_data() -> Path:
    """Return the folder of public price data, which need not exist."""
    return Path(os.environ.get("HEXCLOUD_SHARED_DATA", ROOT.parent / "shared" / "data"))


def whole_market(*, most: int | None = None) -> tuple[Market, str]:
    """Return a market of thousands of offers and where it comes from; `most` keeps an even sample of so many."""
    folder = shared_data() / "skypilot-catalog"
    found = {offer.id: offer for offer in (_recorded(folder) if folder.is_dir() else _made_up())}
    offers = [found[name] for name in sorted(found)]
    if most is not None:
        offers = offers[:: max(1, len(offers) // most)]
    network = load_network()
    egress = [
        EgressPrice(cloud=cloud, scope=scope, usd_per_gb=usd, source="price list (general knowledge)")
        for cloud, prices in _EGRESS_USD_PER_GB.items()
        for scope, usd in zip(LinkScope, prices, strict=True)
    ]
    market = Market(
        as_of=AS_OF,
        offers=tuple(offers),
        gpus=load_gpus(),
        network=network.model_copy(update={"egress": (*network.egress, *egress)}),
        calibration=load_calibration(),
    )
    return market, "SkyPilot catalog rows" if folder.is_dir() else "made-up market of the same shape"


def _recorded(folder: Path) -> Iterator[Offer]:
    networks = _networks(folder.parent / "instance-network.csv")
    hosts = {(row["InstanceType"], row["AvailabilityZone"]): row for row in _lines(folder / "gcp-hosts.csv")}
    for file in sorted(folder.glob("*.csv")):
        for row in _lines(file) if "InstanceType" in _header(file) and file.stem != "gcp-hosts" else ():
            cloud = row.get("Cloud") or file.stem
            whole = _with_host(row, hosts) if cloud == "gcp" else row
            if whole is not None and whole.get("AcceleratorName"):
                yield from _offers(cloud, whole, networks)


def _offers(cloud: str, row: Line, networks: dict[tuple[str, str], float]) -> Iterator[Offer]:
    """One offer per tenure that has a price."""
    count = _number(row["AcceleratorCount"])
    if count not in GPU_COUNTS:
        return
    named = row["AcceleratorName"]
    gpu = _RUNPOD_NAMES.get(named) if cloud == "runpod" else None
    zone = row.get("AvailabilityZone") or None
    for tenure, column in ((Tenure.ON_DEMAND, "Price"), (Tenure.SPOT, "SpotPrice")):
        usd_per_hour = _number(row.get(column, ""))
        if usd_per_hour <= 0:
            continue
        yield Offer(
            id=offer_id(cloud, row["Region"], zone, row["InstanceType"], tenure),
            cloud=cloud,
            region=row["Region"],
            zone=zone,
            instance_type=row["InstanceType"],
            tenure=tenure,
            gpu=gpu or _GPU_NAMES.get(named, named),
            gpu_count=int(count),
            vcpus=_number(row["vCPUs"]),
            memory_gib=_number(row["MemoryGiB"]),
            network_gb_per_s=networks.get((cloud, row["InstanceType"]), DEFAULT_GB_PER_S),
            usd_per_hour=usd_per_hour,
            as_of=AS_OF,
            source="skypilot-catalog",
        )


def _with_host(row: Line, hosts: dict[tuple[str, str], Line]) -> Line | None:
    """Add the host machine's price to a GCP GPU row; None where the host is not sold there."""
    if row["InstanceType"]:
        return row
    name = _GCP_HOSTS.get((row["AcceleratorName"], int(_number(row["AcceleratorCount"]))), _GCP_DEFAULT_HOST)
    host = hosts.get((name, row["AvailabilityZone"]))
    if host is None:
        return None
    prices = {}
    for column in ("Price", "SpotPrice"):
        parts = (_number(row[column]), _number(host[column]))
        prices[column] = str(sum(parts)) if min(parts) > 0 else ""
    suffix = "" if name in _GCP_HOSTS.values() else f"+{row['AcceleratorName']}x{row['AcceleratorCount']}"
    shape = {"InstanceType": name + suffix, "vCPUs": host["vCPUs"], "MemoryGiB": host["MemoryGiB"]}
    return {**row, **prices, **shape}


def _networks(file: Path) -> dict[tuple[str, str], float]:
    rows = ((row["cloud"], row["instance_type"], _number(row["network_gbps"])) for row in _lines(file))
    return {(cloud, name): gbps / 8 for cloud, name, gbps in rows if gbps > 0}


def _lines(file: Path) -> Iterator[Line]:
    with file.open(newline="", encoding="utf-8") as opened:
        yield from csv.DictReader(opened, restval="")


def _header(file: Path) -> list[str]:
    with file.open(newline="", encoding="utf-8") as opened:
        return next(csv.reader(opened), [])


def _number(text: str) -> float:
    """Read a number; 0 for what is none, which no price is."""
    try:
        return float(text)
    except ValueError:
        return 0.0


_KINDS = (
    ("H100", 8, 32.0, 192, 400.0),
    ("H100", 1, 3.5, 24, 12.5),
    ("H200", 8, 38.0, 192, 400.0),
    ("A100-80GB", 8, 20.0, 96, 50.0),
    ("A100-80GB", 1, 2.2, 12, 3.0),
    ("A100-40GB", 8, 16.0, 96, 50.0),
    ("L40S", 8, 12.0, 192, 12.5),
    ("L40S", 1, 1.5, 16, 2.5),
    ("A10G", 4, 5.7, 48, 5.0),
    ("A10G", 1, 1.0, 8, 1.25),
    ("L4", 8, 8.0, 96, 12.5),
    ("L4", 1, 0.8, 8, 1.25),
    ("T4", 4, 3.9, 48, 6.25),
    ("V100", 8, 24.0, 64, 3.1),
)
"""GPU, how many, USD/h, vCPUs and network GB/s of usual machines."""
_PLACES = tuple(
    (cloud, f"{word}-{number}")
    for cloud in ("aws", "gcp", "azure", "lambda", "runpod")
    for word in ("us-east", "us-west", "eu-north", "eu-west", "ap-south", "ap-east")
    for number in (1, 2, 3)
)


def _made_up() -> Iterator[Offer]:
    """Ninety regions with up to three zones; prices differ by place, spot is a quarter to three quarters of them."""
    dice = random.Random(0)
    for cloud, region in _PLACES:
        level = dice.uniform(0.8, 1.4)
        zones = ("a", "b", "c") if cloud in ("aws", "gcp", "azure") else (None,)
        for zone in zones:
            for gpu, count, usd, vcpus, network in _KINDS:
                for tenure in Tenure if dice.random() < 0.97 else (Tenure.ON_DEMAND,):
                    share = dice.uniform(0.25, 0.75) if tenure is Tenure.SPOT else 1.0
                    instance_type = f"{count}x-{gpu.lower()}"
                    yield Offer(
                        id=offer_id(cloud, region, zone, instance_type, tenure),
                        cloud=cloud,
                        region=region,
                        zone=zone,
                        instance_type=instance_type,
                        tenure=tenure,
                        gpu=gpu,
                        gpu_count=count,
                        vcpus=vcpus,
                        memory_gib=vcpus * 8,
                        network_gb_per_s=network,
                        usd_per_hour=round(usd * level * share, 4),
                        as_of=AS_OF,
                        source="made up",
                    )
