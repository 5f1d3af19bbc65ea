"""SnapshotMarket: the bundled catalog as a market. Prices are facts of their own day; their age is in each offer."""

import csv
import math
from datetime import UTC, datetime
from pathlib import Path

from hexcloud.adapters.files import (
    catalog_root,
    load_calibration,
    load_gpus,
    load_network,
    load_odd_counts,
    load_rates,
    load_usual,
    suggest,
)
from hexcloud.appraise.gate import findings_of, gate, offers_of
from hexcloud.appraise.known import Known
from hexcloud.appraise.merge import merge
from hexcloud.domain.calibration import Factor
from hexcloud.domain.errors import ConfigError, MarketError
from hexcloud.domain.market import Market
from hexcloud.domain.row import Row

COLUMNS = (
    "region",
    "zone",
    "instance_type",
    "tenure",
    "gpu",
    "gpu_count",
    "vcpus",
    "memory_gib",
    "network_gb_per_s",
    "usd_per_hour",
    "quota",
    "quota_units",
    "as_of",
    "source",
)
"""Header of `catalogs/offers/{cloud}.csv`; `quota_global` too where a cloud has a limit over all regions."""


class SnapshotMarket:
    """Reads `catalogs/` once. Implements MarketSource."""

    def __init__(
        self, clouds: tuple[str, ...] = (), root: Path | None = None, factors: tuple[Factor, ...] = ()
    ) -> None:
        """Offer only these clouds (empty: all). Measured `factors` win over the catalog's calibration.

        Raises ConfigError for a cloud that the catalog does not have.
        """
        self._root = root or catalog_root()
        known = sorted(file.stem for file in (self._root / "offers").glob("*.csv"))
        for cloud in clouds:
            if cloud not in known:
                raise ConfigError(f"cloud {cloud!r} is unknown{suggest(cloud, known)}")
        self._known = known
        self._clouds = frozenset(clouds or known)
        self._factors = factors
        self._market: Market | None = None

    def market(self, now_s: float) -> Market:
        """Return the snapshot as seen at this run-clock moment. Raises MarketError when the catalog is broken."""
        now = datetime.fromtimestamp(now_s, UTC)
        if self._market is None:
            self._market = self._read(now)
        return self._market.model_copy(update={"as_of": now})

    def _facts(self) -> Known:
        return Known(
            usual_usd_per_gpu_hour=load_usual(self._root),
            usd_per_unit=load_rates(self._root),
            odd_counts=load_odd_counts(self._root),
        )

    def _read(self, now: datetime) -> Market:
        """Judge all clouds together, whichever are asked for: what is usual must not depend on the question."""
        try:
            gpus = load_gpus(self._root)
            rows = [row for cloud in self._known for row in read_rows(self._root / "offers" / f"{cloud}.csv")]
            beliefs = gate(rows, self._facts())
            return Market(
                as_of=now,
                offers=tuple(offer for offer in merge(offers_of(beliefs)) if offer.cloud in self._clouds),
                gpus=gpus,
                network=load_network(self._root),
                calibration=load_calibration(self._root).with_factors(self._factors),
                findings=tuple(found for found in findings_of(beliefs) if found.row.split("/", 1)[0] in self._clouds),
            )
        except (OSError, UnicodeError, csv.Error, ConfigError) as error:
            raise MarketError(f"catalog {self._root}: {error}") from error


def read_rows(path: Path) -> list[Row]:
    """Read one cloud's offers as they stand; the file's name is the cloud. Raises MarketError for a wrong header."""
    with path.open(newline="", encoding="utf-8") as file:
        lines = csv.DictReader(file, restval="")
        missing = [name for name in COLUMNS if name not in (lines.fieldnames or ())]
        if missing:
            raise MarketError(f"{path}: column {missing[0]} is missing")
        return [_row(path.stem, line) for line in lines]


def _row(cloud: str, line: dict[str, str]) -> Row:
    return Row(
        cloud=cloud,
        region=line["region"],
        zone=line["zone"] or None,
        instance_type=line["instance_type"],
        tenure=line["tenure"],
        gpu=line["gpu"],
        gpu_count=_number(line["gpu_count"]),
        vcpus=_number(line["vcpus"]),
        memory_gib=_number(line["memory_gib"]),
        network_gb_per_s=_number(line["network_gb_per_s"]),
        price=_number(line["usd_per_hour"]),
        quota=line["quota"] or None,
        quota_units=_number(line["quota_units"] or "0"),
        quota_global=line.get("quota_global") or None,
        as_of=line["as_of"],
        source=line["source"],
    )


def _number(text: str) -> float:
    """Read a number; NaN for what is none, so that the gate rejects the row with a reason."""
    try:
        return float(text)
    except ValueError:
        return math.nan
