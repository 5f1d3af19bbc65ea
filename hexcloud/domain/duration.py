"""Duration: a span of time as users write it."""

import re

from hexcloud.domain.errors import ConfigError

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PATTERN = re.compile(r"^\s*(?P<number>[0-9]*\.?[0-9]+)\s*(?P<unit>[smhd])\s*$", re.IGNORECASE)


def parse_duration(text: str) -> float:
    """Return seconds for `90s`, `10m`, `2h` or `1d`. Raises ConfigError for anything else, and for zero."""
    found = _PATTERN.match(text)
    seconds = float(found["number"]) * _SECONDS[found["unit"].lower()] if found else 0.0
    if seconds <= 0:
        raise ConfigError(f"{text!r} is not an interval; write a positive number with its unit: 90s, 10m, 2h or 1d")
    return seconds
