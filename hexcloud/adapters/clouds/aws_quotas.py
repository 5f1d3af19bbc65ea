"""Which account limit an AWS machine draws on. Limits count vCPUs, per region, on-demand and spot apart.

Codes: Service Quotas, service `ec2` ("Running On-Demand P instances", "All P5 Spot Instance Requests", ...); the
families of older machines also in SkyPilot's catalog v8. That P6 draws on P5's spot limit is not documented.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hexcloud.domain.market import Quota


class Codes(NamedTuple):
    """Quota codes of one family."""

    on_demand: str
    spot: str


_G = Codes("L-DB2E81BA", "L-3819A6DF")
_P = Codes("L-417A185B", "L-C4BD4855")
_P_TO_4 = Codes("L-417A185B", "L-7212CCBC")
_BY_FAMILY = {
    "g": _G,
    "gr": _G,
    "vt": _G,
    "p": _P,
    "dl": Codes("L-6E869C2A", "L-85EED4F7"),
    "inf": Codes("L-1945791B", "L-B5D1601B"),
    "trn": Codes("L-2C3B7624", "L-6B0D517C"),
}
_FAMILY = re.compile(r"([a-z]+)(\d{1,3})")
ALL_CODES = frozenset(code for codes in (*_BY_FAMILY.values(), _P_TO_4) for code in codes)


def codes_of(instance_type: str) -> Codes | None:
    """Return the quota codes of a machine; None for a family without accelerators."""
    found = _FAMILY.match(instance_type)
    if found is None:
        return None
    if found[1] == "p" and int(found[2]) <= 4:
        return _P_TO_4
    return _BY_FAMILY.get(found[1])


def quota_key(region: str, code: str) -> str:
    """Return the key of a limit, in vCPUs."""
    return f"aws/{region}/{code}"


def quotas_left(region: str, limits: Mapping[str, float], used: Iterable[tuple[str, float]]) -> tuple[Quota, ...]:
    """Return what is left of each limit after machines that run: (code, vCPUs) each. Capacity reservations not seen."""
    taken = dict.fromkeys(limits, 0.0)
    for code, vcpus in used:
        taken[code] = taken.get(code, 0.0) + vcpus
    return tuple(
        Quota(key=quota_key(region, code), left=max(limit - taken[code], 0.0), limit=limit)
        for code, limit in sorted(limits.items())
    )
