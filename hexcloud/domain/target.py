"""Target: a throughput as users write it, turned into samples per second."""

import re

from hexcloud.domain.errors import ConfigError
from hexcloud.domain.workload import Workload

_SUFFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_PER_SECOND = {"s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0}
_PATTERN = re.compile(
    r"^\s*(?P<number>[0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*(?P<suffix>[kmg]?)\s*"
    r"(?P<unit>tok|tokens|samples?|steps?)?\s*(?:/\s*(?P<per>s|sec|min|h))?\s*$",
    re.IGNORECASE,
)


def parse_target(text: str, workload: Workload) -> float:
    """Return samples/s for `20k`, `20k tok/s`, `3 samples/s` or `5 steps/min`. Bare numbers are trained tok/s.

    Raises ConfigError for anything else, and for a target that is not positive.
    """
    found = _PATTERN.match(text)
    if not found:
        raise ConfigError(f"target {text!r} is not a throughput; write 20k (tok/s), '3 samples/s' or '5 steps/min'")
    value = float(found["number"]) * _SUFFIX[found["suffix"].lower()] / _PER_SECOND[(found["per"] or "s").lower()]
    if value <= 0 or value == float("inf"):
        raise ConfigError(f"target {text!r} must be a positive number")
    unit = (found["unit"] or "tok").lower()
    if unit.startswith("sample"):
        return value
    if unit.startswith("step"):
        return value * workload.samples_per_step
    return value / workload.tokens_per_sample
