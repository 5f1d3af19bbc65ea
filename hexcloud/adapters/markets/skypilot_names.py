"""GPU names between SkyPilot's catalogs and ours, by the rules of `catalogs/gpu_names.yaml`."""

import ast
import json
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, NamedTuple

from hexcloud.adapters.catalog_models import GpuNameCatalog, NameRule

MAX_INFO_CHARS = 4096
"""No honest GpuInfo is longer; the real ones have about 150 characters."""
LEAST_MIB = 1024
"""A smaller figure in the MiB field is GiB: some catalogs fill it so."""


class GpuInfo(NamedTuple):
    """What the GpuInfo column says of one GPU."""

    name: str = ""
    memory_gib: float | None = None


class Listed(NamedTuple):
    """An accelerator as a catalog line lists it."""

    cloud: str
    instance_type: str
    accelerator: str
    info: GpuInfo = GpuInfo()


@lru_cache(maxsize=4096)
def gpu_info(text: str) -> GpuInfo:
    """Read GpuInfo: a Python dict as text, JSON, a list of either, a bare name, or nothing.

    What cannot be read is nothing. The text is parsed as a literal and never evaluated, and only up to MAX_INFO_CHARS.
    """
    text = text.strip()
    if len(text) > MAX_INFO_CHARS:
        return GpuInfo()
    if not text.startswith(("{", "[")):
        return GpuInfo(name=text)
    gpus = _at(_literal(text), "Gpus")
    first = gpus[0] if isinstance(gpus, list) and gpus else gpus
    name, mib = _at(first, "Name"), _at(_at(first, "MemoryInfo"), "SizeInMiB")
    return GpuInfo(name=name if isinstance(name, str) else "", memory_gib=_gib(mib))


class GpuNames:
    """Translates both ways. Equal questions are answered from memory: a catalog has few distinct ones."""

    def __init__(self, catalog: GpuNameCatalog) -> None:
        self._rules = catalog.rules
        self._shares = {(share.cloud, share.instance_type): share.gpus for share in catalog.shares}
        self._back = catalog.back
        self._known: dict[Listed, str] = {}

    def ours(self, listed: Listed) -> str:
        """Return our name of a listed accelerator; the source's own where no rule fits."""
        if listed not in self._known:
            self._known[listed] = next((rule.gpu for rule in self._rules if _fits(rule, listed)), listed.accelerator)
        return self._known[listed]

    def count(self, cloud: str, instance_type: str, listed: float) -> float:
        """Return how many GPUs a machine has: as listed, unless it is known to have a slice of one."""
        return self._shares.get((cloud, instance_type), listed)

    def skypilot(self, cloud: str, instance_type: str, gpu: str) -> str:
        """Return SkyPilot's name of a GPU of ours in a machine of a cloud."""
        return next(
            (
                name.accelerator
                for name in self._back
                if name.gpu == gpu
                and (not name.clouds or cloud in name.clouds)
                and fnmatchcase(instance_type, name.instance_type)
            ),
            gpu,
        )


def _fits(rule: NameRule, listed: Listed) -> bool:
    if rule.clouds and listed.cloud not in rule.clouds:
        return False
    if rule.memory_gib is not None and not _within(listed.info.memory_gib, rule.memory_gib):
        return False
    return _match_all(
        (listed.accelerator, rule.accelerator),
        (listed.instance_type, rule.instance_type),
        (listed.info.name, rule.info),
    )


def _match_all(*pairs: tuple[str, str]) -> bool:
    return all(fnmatchcase(text.lower(), pattern.lower()) for text, pattern in pairs)


def _within(number: float | None, limits: Iterable[float]) -> bool:
    least, most = limits
    return number is not None and least <= number <= most


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _at(value: Any, key: str) -> Any:
    """Look into a dict; a list stands for its `Gpus` or for its first entry."""
    if isinstance(value, list) and key == "Gpus":
        return value
    return value.get(key) if isinstance(value, dict) else None


def _gib(mib: Any) -> float | None:
    try:
        size = float(mib)
    except (TypeError, ValueError, OverflowError):
        return None
    return size if size < LEAST_MIB else size / 1024
