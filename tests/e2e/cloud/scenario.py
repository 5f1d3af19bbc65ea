"""What the emulated cloud is told to do: the file that moto and the machines follow, and what they wrote of it."""

import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SINCE = "2026-01-01T00:00:00+00:00"
ZONES = {"us-east-1": "abcdef", "us-west-2": "abcd"}
DEAR = {"g6.xlarge": 0.72, "g5.xlarge": 0.90, "g6.12xlarge": 4.1, "g5.12xlarge": 5.1, "p4d.24xlarge": 19.0}
EAST, EAST_TOO, EAST_LAST = ("g6.xlarge", "us-east-1a"), ("g6.xlarge", "us-east-1b"), ("g6.xlarge", "us-east-1c")
WEST, WEST_TOO = ("g5.xlarge", "us-west-2a"), ("g5.xlarge", "us-west-2b")
CHEAP = {EAST: 0.30, EAST_TOO: 0.38, EAST_LAST: 0.45, WEST: 0.32, WEST_TOO: 0.36}
"""USD/h of spot: DEAR everywhere, but for a type and zone or two in each region."""


def spot_prices(cheap: Mapping[tuple[str, str], float]) -> dict[str, list[list[Any]]]:
    """Return what every zone asks, as the scenario has it."""
    zones = {region: [f"{region}{letter}" for letter in letters] for region, letters in ZONES.items()}
    return {
        region: [[kind, zone, SINCE, cheap.get((kind, zone), usd)] for kind, usd in DEAR.items() for zone in names]
        for region, names in zones.items()
    }


USUAL: dict[str, Any] = {
    "regions": ["us-east-1", "us-west-2"],
    "types": ["g5.xlarge", "g5.12xlarge", "g6.xlarge", "g6.12xlarge", "p4d.24xlarge", "m6i.2xlarge"],
    "on_demand": {
        "*": {
            "g5.xlarge": 1.006,
            "g5.12xlarge": 5.672,
            "g6.xlarge": 0.8048,
            "g6.12xlarge": 4.6016,
            "p4d.24xlarge": 21.9576,
        }
    },
    "spot_prices": spot_prices(CHEAP),
    "quotas": {"*": {"L-DB2E81BA": 768, "L-3819A6DF": 768, "L-417A185B": 384, "L-7212CCBC": 384}},
}


class Scenario:
    """The scenario in force. Its rules are those of tests/clouds/moto_server.py; a change starts their counts anew."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "scenario.json"
        self._log = folder / "calls.jsonl"
        self._log.touch()
        self._rules: dict[str, Any] = {}
        self._since = 0
        self.reset()

    def reset(self) -> None:
        """Follow the usual scenario again, and count calls from here on."""
        self._since = self._log.stat().st_size
        self._rules = {**USUAL, "log": str(self._log)}
        self.update()

    def update(self, **changes: Any) -> None:
        """Follow these rules too from now on; each named one replaces its predecessor."""
        self._rules.update(changes)
        whole = self.path.with_suffix(".new")
        whole.write_text(json.dumps(self._rules))
        os.replace(whole, self.path)

    def interrupt(self, instance_id: str, notice_s: float = 120.0) -> None:
        """Give a machine its interruption notice: it is terminated when `notice_s` are over."""
        at = _iso(time.time() + notice_s)
        notices = {**self._rules.get("notices", {}), instance_id: {"action": "terminate", "time": at}}
        self.update(notices=notices)

    def rebalance(self, instance_id: str) -> None:
        """Recommend that a machine be left: nothing more happens to it."""
        self.update(rebalances={**self._rules.get("rebalances", {}), instance_id: _iso(time.time())})

    def calls(self, **facts: Any) -> list[dict[str, Any]]:
        """Return the calls and launches since the last `reset`, those with these facts."""
        read = [json.loads(line) for line in self._log.read_bytes()[self._since :].splitlines()]
        return [call for call in read if all(call.get(name) == value for name, value in facts.items())]


def _iso(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
