"""A moto server over HTTP with what moto lacks. A scenario, a JSON file that may change meanwhile, tells it what to do.

Run: `python -m tests.clouds.moto_server --scenario FILE [--port N]`; the first line it prints is `{"port": N}`.

Scenario (every key may be left out):
  regions           ["us-east-1"]: what DescribeRegions lists
  types             ["p5.48xlarge"]: the only machines there are (moto knows 1,395)
  offerings         {region: {zone id: [types]}}: instead of moto's own
  on_demand         {region or "*": {type: price, or {currency: price}}}
  spot_prices       {region: [[type, zone name, ISO time, price], ...]}
  spot_share        0.4: of on-demand, for regions without spot_prices
  quotas            {region or "*": {code: vCPUs}}
  placement_scores  {region: {type or "*": {zone id: score}}}; left out: not allowed
  page_size         1000: for spot prices, products and quotas
  no_capacity       [{"type", "zone" (name or id), "tenure": "spot" or "on_demand", "code", "times"}]: launches refused
  faults            [{"service", "region", "action", "do", "times", "code", "status", "message", "body", "hang_s"}]
                    Of objects: service "s3", action GET, PUT, HEAD or DELETE.
                    do: throttle, expired, unknown, denied, empty, hang, error, body. What is left out matches all
  notices, rebalances  what machines read in their metadata; see tests/e2e/cloud/machines.py
  log               a file that gets one JSON line for every call and every launch
"""

import argparse
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

os.environ.setdefault("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, InstanceTypeBackend, InstanceTypeOfferingBackend
from moto.ec2.models.instances import InstanceBackend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from tests.clouds.moto_stubs import WATCHER_KEY, Asked, answer_fault, answer_stub, read_asked

StartResponse = Callable[[str, list[tuple[str, str]]], Any]
MAX_HANG_S = 600.0


class Scenario:
    """The file as it is now, and how often each of its rules was used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at = -1
        self._data: dict[str, Any] = {}
        self._used: Counter[str] = Counter()
        self._lock = threading.RLock()

    def data(self) -> dict[str, Any]:
        with self._lock:
            written_at = self._path.stat().st_mtime_ns
            if written_at != self._read_at:
                self._data, self._read_at = json.loads(self._path.read_text()), written_at
                self._used.clear()
            return self._data

    def take(self, kind: str, **facts: Any) -> dict[str, Any] | None:
        """Return the first rule of a kind that fits and is not used up, and count it."""
        with self._lock:
            for number, rule in enumerate(self.data().get(kind, [])):
                key = f"{kind}/{number}"
                is_left = self._used[key] < rule.get("times", float("inf"))
                if is_left and all(rule.get(name) in (None, value) for name, value in facts.items()):
                    self._used[key] += 1
                    return dict(rule)
        return None

    def log(self, **facts: Any) -> None:
        log = self.data().get("log")
        if log:
            with self._lock, Path(log).open("a") as file:
                file.write(json.dumps({"at_s": time.time(), **facts}) + "\n")


class Front:
    """Stands before moto: faults first, then what moto lacks, then moto."""

    def __init__(self, moto: Any, scenario: Scenario) -> None:
        self._moto = moto
        self._scenario = scenario
        self._one_at_a_time = threading.Lock()

    def __call__(self, environ: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        asked = read_asked(environ)
        if asked.key == WATCHER_KEY:
            return self._ask_moto(asked, environ, start)
        fault = self._scenario.take("faults", service=asked.service, region=asked.region, action=asked.action)
        self._scenario.log(
            service=asked.service, region=asked.region, action=asked.action, fault=fault and fault.get("do")
        )
        if fault and fault.get("do") == "hang":
            time.sleep(min(float(fault.get("hang_s", MAX_HANG_S)), MAX_HANG_S))
            fault = None
        answer = answer_fault(asked, fault) if fault else answer_stub(asked, self._scenario.data(), offered)
        if answer is None:
            return self._ask_moto(asked, environ, start)
        start(f"{answer.status} -", [("Content-Type", answer.kind), ("Content-Length", str(len(answer.body)))])
        return [answer.body]

    def _ask_moto(self, asked: Asked, environ: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        """Moto's EC2 lists machines while another thread changes their tags, and then answers 500."""
        if asked.service == "s3":
            return self._moto(environ, start)  # type: ignore[no-any-return]
        with self._one_at_a_time:
            return list(self._moto(environ, start))


def offered(data: dict[str, Any], region: str, location: str = "availability-zone") -> list[dict[str, str]]:
    """Return {InstanceType, Location} of a region: the scenario's own, else moto's."""
    own = data.get("offerings", {}).get(region)
    if own is None:
        known = data.get("types")
        listed = INSTANCE_TYPE_OFFERINGS[location].get(region, [])
        return [offer for offer in listed if known is None or offer["InstanceType"] in known]
    names = {zone.zone_id: zone.name for zone in RegionsAndZonesBackend.zones.get(region, [])}
    spell: dict[str, Callable[[str], str]] = {
        "availability-zone": lambda zone: names.get(zone, zone),
        "availability-zone-id": lambda zone: zone,
        "region": lambda zone: region,
    }
    pairs = {(kind, spell[location](zone)) for zone, kinds in own.items() for kind in kinds}
    return [{"InstanceType": kind, "Location": where} for kind, where in sorted(pairs)]


def wrap_offerings(scenario: Scenario) -> None:
    """Moto compares the types of a filter letter by letter; the real service knows `g*`."""

    def describe(
        self: Any, location_type: str | None = None, filters: dict[str, Any] | None = None
    ) -> list[dict[str, str]]:
        asked = (filters or {}).get("instance-type", ["*"])
        places = (filters or {}).get("location", ["*"])
        found = offered(scenario.data(), self.region_name, location_type or "region")
        return [
            offer
            for offer in found
            if any(fnmatchcase(offer["InstanceType"], pattern) for pattern in asked)
            and any(fnmatchcase(offer["Location"], pattern) for pattern in places)
        ]

    InstanceTypeOfferingBackend.describe_instance_type_offerings = describe  # type: ignore[method-assign]


def wrap_types(scenario: Scenario) -> None:
    """Moto's answer about all its machines takes seconds."""
    ask = InstanceTypeBackend.describe_instance_types

    def describe(self: Any, instance_types: list[str] | None = None, filters: Any = None) -> list[Any]:
        known = scenario.data().get("types")
        found = ask(self, instance_types, filters)
        return [kind for kind in found if known is None or kind["InstanceType"] in known]

    InstanceTypeBackend.describe_instance_types = describe  # type: ignore[method-assign]


def wrap_launches(scenario: Scenario) -> None:
    """Moto never runs out of machines; a scenario does."""
    launch = InstanceBackend.run_instances

    def run_instances(self: Any, image_id: Any, count: int, user_data: Any, groups: Any, **asked: Any) -> Any:
        zone = _zone(self, asked)
        facts = {
            "type": asked.get("instance_type"),
            "tenure": "spot" if asked.get("instance_market_options") else "on_demand",
        }
        ids = {known.name: known.zone_id for known in RegionsAndZonesBackend.zones.get(self.region_name, [])}
        spellings = (zone, ids.get(zone, zone))
        rule = next((rule for name in spellings if (rule := scenario.take("no_capacity", zone=name, **facts))), None)
        scenario.log(launch="refused" if rule else "ok", count=count, zone=zone, region=self.region_name, **facts)
        if rule:
            said = f"We currently do not have sufficient {facts['type']} capacity in the Availability Zone ({zone})."
            raise EC2ClientError(rule.get("code", "InsufficientInstanceCapacity"), rule.get("message", said))
        return launch(self, image_id, count, user_data, groups, **asked)

    InstanceBackend.run_instances = run_instances  # type: ignore[assignment, method-assign]


def _zone(backend: Any, asked: dict[str, Any]) -> str:
    nics = asked.get("nics") or ()
    subnets = [asked.get("subnet_id"), *(nic.get("SubnetId") for nic in nics)]
    subnet = next((subnet for subnet in subnets if subnet), None)
    if subnet:
        return str(backend.get_subnet(subnet).availability_zone)
    placement = asked.get("placement") or ""
    return str(placement.get("AvailabilityZone", "") if isinstance(placement, dict) else placement)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args(argv)
    scenario = Scenario(given.scenario)
    scenario.data()
    wrap_offerings(scenario)
    wrap_types(scenario)
    wrap_launches(scenario)
    front = Front(DomainDispatcherApplication(create_backend_app), scenario)
    server = make_server(given.host, given.port, front, threaded=True, request_handler=MotoRequestHandler)
    server.daemon_threads = True  # type: ignore[attr-defined]
    sys.stdout.write(json.dumps({"port": server.server_port}) + "\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
