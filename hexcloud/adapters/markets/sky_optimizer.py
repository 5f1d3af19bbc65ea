"""SkyPilot's own optimizer on our offers: where would it rent the same machines? For comparison only; rents nothing.

It runs in a process of its own with a home of its own, so that the user's catalogs and credentials stay out of it and
nothing is fetched. All offers are listed as one cloud: it compares prices and nothing else, so names do not matter.
"""

import csv
import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from hexcloud.domain.errors import MarketError
from hexcloud.domain.offer import Offer, OfferId, Tenure

TIMEOUT_S = 180.0
CATALOG = ".sky/catalogs/v8"
"""Where SkyPilot 0.14 looks, below HOME. Files that it did not download itself are never refreshed."""
_ASKS, _PICKS = "asks.json", "picks.json"
_COLUMNS = (
    "InstanceType",
    "AcceleratorName",
    "AcceleratorCount",
    "vCPUs",
    "MemoryGiB",
    "GpuInfo",
    "Price",
    "SpotPrice",
    "Region",
    "AvailabilityZone",
    "Arch",
)
_EMPTY = {
    "aws/images.csv": "Tag,Region,OS,OSVersion,ImageId,CreationDate,BaseImageId\n",
    "aws/instance_quota_mapping.csv": "InstanceType,OnDemandInstanceCode,SpotInstanceCode\n",
    "common/metadata.csv": "GPU,MemoryGB,Manufacturer\n",
}


class Ask(NamedTuple):
    """Equal machines, as a user of SkyPilot would ask for them."""

    gpu: str
    gpu_count: int
    nodes: int
    tenure: Tenure


def is_installed() -> bool:
    """Is SkyPilot there?"""
    return importlib.util.find_spec("sky") is not None


def picks(asks: tuple[Ask, ...], offers: tuple[Offer, ...]) -> frozenset[OfferId]:
    """Return the offers that SkyPilot's optimizer takes for the asks; on demand, all zones of the region it takes.

    Raises MarketError when it fails or takes too long.
    """
    return picks_of((asks,), offers)[0]


def picks_of(buyers: tuple[tuple[Ask, ...], ...], offers: tuple[Offer, ...]) -> tuple[frozenset[OfferId], ...]:
    """Return what `picks` returns, for each of several buyers: the optimizer is started once."""
    with tempfile.TemporaryDirectory() as home:
        _write_catalog(Path(home) / CATALOG, offers)
        (Path(home) / _ASKS).write_text(json.dumps(buyers))
        _run(home)
        taken = json.loads((Path(home) / _PICKS).read_text())
    return tuple(_offers_at(places, offers) for places in taken)


def _offers_at(places: list[tuple[str, str, str | None, bool]], offers: tuple[Offer, ...]) -> frozenset[OfferId]:
    taken = {(instance_type, region, zone, is_spot) for instance_type, region, zone, is_spot in places}
    return frozenset(offer.id for offer in offers if taken & {_place(offer, zone) for zone in (_zone(offer), None)})


def _run(home: str) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SKY"))}
    quiet = {"SKYPILOT_DISABLE_USAGE_COLLECTION": "1", "AWS_EC2_METADATA_DISABLED": "true", "HOME": home}
    command = [sys.executable, "-m", __spec__.name, home]
    try:
        subprocess.run(command, env=kept | quiet, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise MarketError(f"SkyPilot's optimizer gave no answer in {TIMEOUT_S:.0f} s") from error
    except subprocess.CalledProcessError as error:
        last = error.stderr.strip().splitlines()[-1:] or ["no message"]
        raise MarketError(f"SkyPilot's optimizer failed: {last[0]}") from error


def _write_catalog(folder: Path, offers: tuple[Offer, ...]) -> None:
    for name, text in _EMPTY.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    with (folder / "aws" / "vms.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(_COLUMNS)
        table.writerows(_rows(offers))
    with (folder / "common" / "accelerators.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("AcceleratorName", "Clouds"))
        table.writerows((gpu, "['AWS']") for gpu in sorted({offer.gpu for offer in offers}))


def _rows(offers: tuple[Offer, ...]) -> list[tuple[object, ...]]:
    """Return a row for each machine and zone. On demand a region has one price: its lowest."""
    on_demand: dict[tuple[str, str], float] = {}
    spot: dict[str, dict[str, float]] = defaultdict(dict)
    machines: dict[tuple[str, str], Offer] = {}
    for offer in offers:
        machines[_type(offer), _zone(offer)] = offer
        if offer.tenure is Tenure.SPOT:
            spot[_type(offer)][_zone(offer)] = offer.usd_per_hour
        else:
            here = (_type(offer), _region(offer))
            on_demand[here] = min(offer.usd_per_hour, on_demand.get(here, offer.usd_per_hour))
    rows: list[tuple[object, ...]] = []
    for (instance_type, zone), offer in sorted(machines.items()):
        size = (offer.gpu, offer.gpu_count, offer.vcpus, offer.memory_gib, "")
        prices = (on_demand.get((instance_type, _region(offer)), ""), spot[instance_type].get(zone, ""))
        rows.append((instance_type, *size, *prices, _region(offer), zone, "x86_64"))
    return rows


def _type(offer: Offer) -> str:
    """Return a name for machines of one size: RunPod gives some of a name more memory in one region than in another,
    and SkyPilot refuses a catalog with such a type.
    """
    size = f"{offer.gpu_count}x{offer.gpu}:{offer.vcpus:g}:{offer.memory_gib:g}"
    return f"{offer.cloud}:{offer.instance_type}:{size}"


def _region(offer: Offer) -> str:
    return f"{offer.cloud}:{offer.region}"


def _zone(offer: Offer) -> str:
    return f"{offer.cloud}:{offer.region}:{offer.zone or '-'}"


def _place(offer: Offer, zone: str | None) -> tuple[str, str, str | None, bool]:
    return (_type(offer), _region(offer), zone, offer.tenure is Tenure.SPOT)


def main(home: Path) -> None:
    """Answer the asks in a folder, in a process of its own."""
    import sky
    import sky.check
    from sky.optimizer import Optimizer

    sky.check.get_cached_enabled_clouds_or_refresh = lambda *_, **__: [sky.AWS()]

    @functools.cache
    def place(gpu: str, gpu_count: int, nodes: int, tenure: str) -> tuple[object, ...] | None:
        with sky.Dag() as dag:
            task = sky.Task(num_nodes=nodes)
            task.set_resources({sky.Resources(accelerators=f"{gpu}:{gpu_count}", use_spot=tenure == Tenure.SPOT)})
        Optimizer.optimize(dag, quiet=True)
        best = task.best_resources
        return None if best is None else (best.instance_type, best.region, best.zone, best.use_spot)

    buyers = json.loads((home / _ASKS).read_text())
    places = [[found for ask in asks if (found := place(*ask))] for asks in buyers]
    (home / _PICKS).write_text(json.dumps(places))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
