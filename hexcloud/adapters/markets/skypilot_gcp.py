"""Google Cloud in SkyPilot's files: a machine is a host line and an accelerator line of one zone, and costs their sum.

A machine of which one of the two lines is missing costs more than is listed: its row says which part is missing.
A TPU stands alone, under its own name. Machine types with GPUs, and how many vCPUs may be had per attached GPU: Google
Cloud's pages on GPU machine types.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from hexcloud.adapters.markets.skypilot_lines import Faults, Line

BUILT_IN: dict[str, tuple[str, int]] = {
    "a2-highgpu-1g": ("A100", 1),
    "a2-highgpu-2g": ("A100", 2),
    "a2-highgpu-4g": ("A100", 4),
    "a2-highgpu-8g": ("A100", 8),
    "a2-megagpu-16g": ("A100", 16),
    "a2-ultragpu-1g": ("A100-80GB", 1),
    "a2-ultragpu-2g": ("A100-80GB", 2),
    "a2-ultragpu-4g": ("A100-80GB", 4),
    "a2-ultragpu-8g": ("A100-80GB", 8),
    "a3-highgpu-1g": ("H100", 1),
    "a3-highgpu-2g": ("H100", 2),
    "a3-highgpu-4g": ("H100", 4),
    "a3-highgpu-8g": ("H100", 8),
    "a3-megagpu-8g": ("H100-MEGA", 8),
    "a3-ultragpu-8g": ("H200", 8),
    "a4-highgpu-8g": ("B200", 8),
    "g2-standard-4": ("L4", 1),
    "g2-standard-8": ("L4", 1),
    "g2-standard-12": ("L4", 1),
    "g2-standard-16": ("L4", 1),
    "g2-standard-32": ("L4", 1),
    "g2-standard-24": ("L4", 2),
    "g2-standard-48": ("L4", 4),
    "g2-standard-96": ("L4", 8),
    "g4-standard-48": ("RTXPRO6000", 1),
    "g4-standard-96": ("RTXPRO6000", 2),
    "g4-standard-192": ("RTXPRO6000", 4),
    "g4-standard-384": ("RTXPRO6000", 8),
}
"""Machine type -> the GPUs it always has, by SkyPilot's names."""
ATTACHABLE = frozenset({"K80", "P4", "P100", "T4", "V100"})
"""GPUs that are put on an N1 host of one's choice."""
HOSTS = {1: "n1-standard-8", 2: "n1-standard-16", 4: "n1-standard-32", 8: "n1-standard-96"}
"""Attached GPUs -> the host chosen here: eight vCPUs for each GPU or the next larger type."""
K80_HOSTS = {**HOSTS, 8: "n1-standard-32"}
"""Eight K80 go with at most 64 vCPUs."""
MAX_TWINS = 4
"""A machine in a zone has one price line; beyond a few different ones a file is nonsense."""

Zone = tuple[str, str]


class Machine(NamedTuple):
    """A machine put together: what a row needs beside its prices."""

    name: str
    accelerator: str
    gpus: float
    lines: tuple[Line, ...]
    """The line that has the vCPUs first. Prices are summed over all."""
    missing: str = ""

    @property
    def as_of(self) -> datetime:
        """A sum is as old as its oldest part."""
        return min(line.as_of for line in self.lines)


def machines(lines: Iterable[Line], faults: Faults) -> Iterator[Machine]:
    """Put the machines of all zones together. Lines of hosts that carry no GPU are nobody's business here."""
    hosts: dict[tuple[Zone, str], list[Line]] = defaultdict(list)
    accelerators: dict[tuple[Zone, str, float], list[Line]] = defaultdict(list)
    for line in lines:
        zone = (line.cell("Region"), line.cell("AvailabilityZone"))
        if not line.cell("AcceleratorName"):
            _add(hosts[zone, line.cell("InstanceType")], line, faults)
        elif line.cell("InstanceType") and not _is_tpu(line):
            yield whole(line)
        else:
            _add(accelerators[zone, line.cell("AcceleratorName"), _count(line)], line, faults)
    for (zone, name, count), parts in accelerators.items():
        for part in parts:
            yield from _with_hosts(part, count, _hosts_for(zone, name, count, hosts))
    for (zone, host), found in hosts.items():
        if host in BUILT_IN and (zone, *BUILT_IN[host]) not in accelerators:
            name, has = BUILT_IN[host]
            yield from (Machine(host, name, has, (line,), f"{has} x {name}") for line in found)


def _add(twins: list[Line], line: Line, faults: Faults) -> None:
    """Keep one line of each price."""
    prices = {(twin.cell("Price"), twin.cell("SpotPrice")) for twin in twins}
    if (line.cell("Price"), line.cell("SpotPrice")) in prices:
        return
    if len(twins) >= MAX_TWINS:
        faults.add(line.place, f"listed with more than {MAX_TWINS} different prices")
        return
    twins.append(line)


def _hosts_for(zone: Zone, name: str, count: float, hosts: dict[tuple[Zone, str], list[Line]]) -> dict[str, list[Line]]:
    """Return the machine types that this accelerator makes in a zone, each with its host lines, if there are any."""
    if name in ATTACHABLE:
        chosen = (K80_HOSTS if name == "K80" else HOSTS).get(int(count) if math.isfinite(count) else 0)
        return {} if chosen is None else {chosen: hosts.get((zone, chosen), [])}
    types = [host for host, built_in in BUILT_IN.items() if built_in == (name, count)]
    listed = {host: hosts[zone, host] for host in types if (zone, host) in hosts}
    return listed or {host: [] for host in types[:1]}


def _with_hosts(part: Line, count: float, hosts: dict[str, list[Line]]) -> Iterator[Machine]:
    name = part.cell("AcceleratorName")
    attached = f"{count:g}x{name}"
    if _is_tpu(part):
        yield Machine(name, name, count, (part,))
    elif not hosts:
        yield Machine(attached, name, count, (part,), "the host")
    for host, found in hosts.items():
        kind = f"{host}+{attached}" if name in ATTACHABLE else host
        if not found:
            yield Machine(kind, name, count, (part,), f"the host {host}")
        yield from (Machine(kind, name, count, (line, part)) for line in found)


def _is_tpu(line: Line) -> bool:
    """A TPU's price is all that bills, whatever machine it is listed with: its VM costs nothing extra."""
    return line.cell("AcceleratorName").lower().startswith("tpu")


def whole(line: Line) -> Machine:
    """Return the machine that one line lists whole, as on every other cloud."""
    return Machine(line.cell("InstanceType"), line.cell("AcceleratorName"), _count(line), (line,))


def _count(line: Line) -> float:
    try:
        return float(line.cell("AcceleratorCount"))
    except ValueError:
        return math.nan
