"""The way back: SkyPilot's catalog files written from what we believe, so that both work with the same numbers.

Only machines whose capacity is not in doubt are written, and only clouds that we have offers of. In a file that is
already there, machines without accelerators stay as they are: SkyPilot starts its own controllers on such.
"""

import csv
import hashlib
import io
import json
import os
from pathlib import Path
from typing import NamedTuple

from hexcloud.adapters.files import load_gpu_names
from hexcloud.adapters.markets.skypilot import OWN_EXPORT
from hexcloud.adapters.markets.skypilot_lines import Faults, lines
from hexcloud.adapters.markets.skypilot_names import GpuNames
from hexcloud.adapters.markets.skypilot_split import gcp_table
from hexcloud.adapters.markets.skypilot_tables import (
    Cells,
    Sales,
    Words,
    accelerators_table,
    cloud_table,
    listed_price,
    memory_table,
    quota_table,
)
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.market import Market
from hexcloud.domain.offer import OfferId

QUOTA_MAPS = {
    "aws": ("aws/instance_quota_mapping.csv", "InstanceType"),
    "gcp": ("gcp/accelerator_quota_mapping.csv", "Accelerator"),
}


ZONED = frozenset({"aws", "gcp"})
"""Clouds that SkyPilot asks zone by zone."""


class Written(NamedTuple):
    """What a call left behind."""

    files: tuple[str, ...]
    """Below the folder, sorted."""
    left_out: tuple[OfferId, ...]
    """Believed offers in regions of which no zone is known: SkyPilot could not launch them. And those priced in another
    currency than SkyPilot's catalog has there."""


def write_skypilot_catalog(folder: Path, market: Market) -> Written:
    """Write `<cloud>/vms.csv`, quota maps and the common lists.

    Every file is written beside its place, and all are renamed into it when they are whole. Raises ConfigError when the
    folder cannot be written.
    """
    words = Words(GpuNames(load_gpu_names()), market.gpus)
    offers = tuple(offer for offer in market.offers if offer.proven and offer.gpu in market.gpus)
    tables: dict[str, list[Cells]] = {}
    left_out: list[OfferId] = []
    for cloud in sorted({offer.cloud for offer in offers}):
        mine = tuple(offer for offer in offers if offer.cloud == cloud)
        own = tuple(offer for offer in mine if listed_price(offer) is not None)
        sales = Sales(own, has_zones=cloud in ZONED)
        left_out += [offer.id for offer in mine if listed_price(offer) is None]
        left_out += [offer.id for offer in sales.nowhere()]
        table = (gcp_table if cloud == "gcp" else cloud_table)(sales, words)
        tables[f"{cloud}/vms.csv"] = _with_plain_machines(folder / cloud / "vms.csv", table)
        if cloud in QUOTA_MAPS:
            quotas, key = QUOTA_MAPS[cloud]
            tables[quotas] = _with_old(folder / quotas, quota_table(own, key, words))
    accelerators, metadata = "common/accelerators.csv", "common/metadata.csv"
    tables[accelerators] = _with_old(folder / accelerators, accelerators_table(offers, words))
    tables[metadata] = _with_old(folder / metadata, memory_table(offers, words))
    try:
        _replace_all(folder, {name: _text(table) for name, table in tables.items()})
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error.strerror}") from error
    return Written(tuple(sorted(tables)), tuple(sorted(left_out)))


def _with_plain_machines(path: Path, table: list[Cells]) -> list[Cells]:
    """Add the machines without accelerators that a file already has and this table does not."""
    ours = {_machine(cells) for cells in table}
    old = (line.cells for line in lines(path, Faults()) if not line.cell("AcceleratorName"))
    return table + [cells for cells in old if _machine(cells) not in ours]


def _machine(cells: Cells) -> tuple[str, str, str]:
    return (cells["InstanceType"], cells["Region"], cells.get("AvailabilityZone", ""))


def _with_old(path: Path, table: list[Cells]) -> list[Cells]:
    """Add the lines of a list that is already there, by its first column."""
    if not table:
        return table
    first = next(iter(table[0]))
    ours = {cells[first] for cells in table}
    old = (line.cells for line in lines(path, Faults(), needed=tuple(table[0])))
    return sorted((*table, *(cells for cells in old if cells[first] not in ours)), key=lambda cells: cells[first])


def _text(table: list[Cells]) -> str:
    columns = list(dict.fromkeys(column for cells in table for column in cells))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return out.getvalue()


def _replace_all(folder: Path, texts: dict[str, str]) -> None:
    """Put whole files in place, and last the list by which a later refresh knows them as our own."""
    hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    beside: list[tuple[Path, Path]] = []
    for name, text in {**texts, OWN_EXPORT: json.dumps(hashes, indent=2) + "\n"}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fresh.write_text(text, encoding="utf-8", newline="")
        beside.append((fresh, path))
    for fresh, path in beside:
        fresh.replace(path)
