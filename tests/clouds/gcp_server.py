"""A stand-in for Google Cloud: the REST answers of Compute Engine, Cloud Billing and Resource Manager, from a scenario.

    python tests/clouds/gcp_server.py SCENARIO.json [PORT]

prints its URL and serves until its standard input closes. A scenario is a JSON object:

    project      id of the only project
    page_size    items per page, at most (default 500); a client may ask for fewer
    quotas       the project's own: [{"metric", "limit", "usage"}, ...]
    regions      {name: {"quotas": [...], "zones": {name: {"status": "UP", "machineTypes": [...],
                 "acceleratorTypes": [...]}}}}, items as the real API spells them
    skus         the price list of Compute Engine, as the real API spells them
    permissions  what testIamPermissions grants; absent: everything
    boot_s       an instance runs, and an operation is done, so long after it was asked for (default 0)
    refusals     [{"zone": REGEX, "machine": REGEX, "code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": "...",
                 "times": 1}, ...]: insertions whose operation ends with this error
    faults       [{"method": "GET", "path": REGEX, "times": 2, "delay_s": 1, "status": 429, "message": "...",
                 "reason": "rateLimitExceeded", "body": "raw text instead", "details": [...],
                 "drip_s": 0.1}, ...]: the first that fits and has times left (absent: always) answers instead;
                 status 0 or absent only delays; drip_s waits before each byte of the answer

`POST /_scenario` with an object replaces keys of it, `PUT /_scenario` starts again with another one, `GET /_log` lists
[method, path, body] of what was asked, and `POST /_preempt/ZONE/INSTANCE` takes a spot machine away.
"""

import json
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

COMPUTE = r"/compute/v1/projects/(?P<project>[^/]+)"
SELF = "https://www.googleapis.com/compute/v1/projects"


class GcpError(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, reason: str, message: str, details: list[Any] | None = None) -> None:
        super().__init__(message)
        error = {
            "code": status,
            "message": message,
            "errors": [{"message": message, "domain": "global", "reason": reason}],
        }
        self.status = status
        self.body = {"error": error | ({"details": details} if details else {})}


class Cloud:
    """One project. Every method is one call of the API; the lock is held by the caller."""

    def __init__(self, scenario: dict[str, Any]) -> None:
        self.scenario = scenario
        self.log: list[list[Any]] = []
        self.instances: dict[tuple[str, str], dict[str, Any]] = {}
        self.operations: dict[str, dict[str, Any]] = {}

    # -- what is listed ------------------------------------------------------------------------------------------------
    def regions(self, call: "Call") -> dict[str, Any]:
        names = self.scenario.get("regions", {})
        return call.page("compute#regionList", [self._region(name) for name in names])

    def region(self, call: "Call") -> dict[str, Any]:
        self._find(self.scenario.get("regions", {}), call["region"])
        return self._region(call["region"])

    def _region(self, name: str) -> dict[str, Any]:
        given = self.scenario["regions"][name]
        extra = {key: value for key, value in given.items() if key != "zones"}
        return {"kind": "compute#region", "name": name, "status": "UP", "quotas": [], **extra}

    def zones(self, call: "Call") -> dict[str, Any]:
        return call.page("compute#zoneList", [self._zone(name) for name in self._all_zones()])

    def zone(self, call: "Call") -> dict[str, Any]:
        self._find(self._all_zones(), call["zone"])
        return self._zone(call["zone"])

    def _zone(self, name: str) -> dict[str, Any]:
        region, given = self._all_zones()[name]
        link = f"{SELF}/{self.scenario['project']}/regions/{region}"
        return {"kind": "compute#zone", "name": name, "region": link, "status": given.get("status", "UP")}

    def _all_zones(self) -> dict[str, tuple[str, dict[str, Any]]]:
        regions = self.scenario.get("regions", {}).items()
        return {name: (region, zone) for region, given in regions for name, zone in given.get("zones", {}).items()}

    def listed(self, call: "Call") -> dict[str, Any]:
        _, zone = self._find(self._all_zones(), call["zone"])
        items = [{"zone": call["zone"], **item} for item in zone.get(call["kind"], [])]
        return call.page(f"compute#{call['kind'][:-1]}List", items)

    def one_listed(self, call: "Call") -> dict[str, Any]:
        _, zone = self._find(self._all_zones(), call["zone"])
        items: dict[str, dict[str, Any]] = {item["name"]: item for item in zone.get(call["kind"], [])}
        found: dict[str, Any] = self._find(items, call["name"])
        return found

    def aggregated(self, call: "Call") -> dict[str, Any]:
        kind = call["kind"]
        zones = {name: zone.get(kind, []) for name, (_, zone) in self._all_zones().items()}
        by_zone = {f"zones/{name}": {kind: [one for one in zones[name] if call.fits(one)]} for name in zones}
        if kind == "instances":
            for (zone, _), instance in self.instances.items():
                if call.fits(instance):
                    by_zone.setdefault(f"zones/{zone}", {}).setdefault(kind, []).append(self._seen(instance))
        page = call.page_of_all("compute#aggregatedList", [{"at": at, "what": what} for at, what in by_zone.items()])
        return page | {"items": {item["at"]: item["what"] for item in page["items"]}}

    def project(self, call: "Call") -> dict[str, Any]:
        return {"kind": "compute#project", "name": call["project"], "quotas": self.scenario.get("quotas", [])}

    def skus(self, call: "Call") -> dict[str, Any]:
        if call["service"] != "6F81-5844-456A":
            raise GcpError(404, "notFound", f"service {call['service']} not found")
        offset, size = call.window("pageSize", "pageToken")
        skus = self.scenario.get("skus", [])
        more = str(offset + size) if offset + size < len(skus) else ""
        return {"skus": skus[offset : offset + size], "nextPageToken": more}

    def permissions(self, call: "Call") -> dict[str, Any]:
        granted = self.scenario.get("permissions")
        asked = call.body.get("permissions", [])
        return {"permissions": [name for name in asked if granted is None or name in granted]}

    # -- machines ------------------------------------------------------------------------------------------------------
    def insert(self, call: "Call") -> dict[str, Any]:
        self._find(self._all_zones(), call["zone"])
        key = (call["zone"], call.body["name"])
        if key in self.instances:
            raise GcpError(409, "alreadyExists", f"The resource '{'/'.join(key)}' already exists")
        link = f"{SELF}/{call['project']}/zones/{call['zone']}/instances/{key[1]}"
        refused = self._refusal(call)
        if refused:
            return self._operation("insert", call, link, time.monotonic(), refused)
        ready_s = time.monotonic() + self.scenario.get("boot_s", 0)
        self.instances[key] = {**call.body, "id": str(uuid.uuid4().int >> 65), "zone": call["zone"], "selfLink": link}
        self.instances[key] |= {"creationTimestamp": datetime.now().astimezone().isoformat()}
        self.instances[key] |= {"status": "PROVISIONING", "_ready_s": ready_s, "labelFingerprint": uuid.uuid4().hex}
        return self._operation("insert", call, link, ready_s)

    def instance(self, call: "Call") -> dict[str, Any]:
        return self._seen(self._find(self.instances, (call["zone"], call["name"])))

    def instance_list(self, call: "Call") -> dict[str, Any]:
        found = [self._seen(one) for (zone, _), one in self.instances.items() if zone == call["zone"]]
        return call.page("compute#instanceList", found)

    def set_labels(self, call: "Call") -> dict[str, Any]:
        instance = self._find(self.instances, (call["zone"], call["name"]))
        if call.body.get("labelFingerprint") != instance["labelFingerprint"]:
            raise GcpError(412, "conditionNotMet", "Labels fingerprint either invalid or resource labels have changed")
        instance |= {"labels": call.body.get("labels", {}), "labelFingerprint": uuid.uuid4().hex}
        return self._operation("setLabels", call, instance["selfLink"], time.monotonic())

    def delete(self, call: "Call") -> dict[str, Any]:
        instance = self._find(self.instances, (call["zone"], call["name"]))
        del self.instances[call["zone"], call["name"]]
        return self._operation("delete", call, instance["selfLink"], time.monotonic())

    def preempt(self, call: "Call") -> dict[str, Any]:
        key = (call["zone"], call["name"])
        instance = self._find(self.instances, key)
        self._operation("compute.instances.preempted", call, instance["selfLink"], time.monotonic())
        if instance.get("scheduling", {}).get("instanceTerminationAction") == "DELETE":
            del self.instances[key]
        else:
            instance |= {"status": "TERMINATED", "_ready_s": None}
        return {}

    def operation(self, call: "Call") -> dict[str, Any]:
        return self._seen(self._find(self.operations, call["name"]))

    def operation_list(self, call: "Call") -> dict[str, Any]:
        found = [self._seen(one) for one in self.operations.values() if one["zone"] == call["zone"]]
        return call.page("compute#operationList", found)

    def _refusal(self, call: "Call") -> dict[str, Any] | None:
        """As the real cloud: the call succeeds, and its operation ends with the error."""
        machine = call.body.get("machineType", "").rsplit("/", 1)[-1]
        for refusal in self.scenario.get("refusals", []):
            fits = re.search(refusal.get("zone", ""), call["zone"]) and re.search(refusal.get("machine", ""), machine)
            if fits and refusal.get("times", 1) > 0:
                if "times" in refusal:
                    refusal["times"] -= 1
                code = refusal.get("code", "ZONE_RESOURCE_POOL_EXHAUSTED")
                return {"errors": [{"code": code, "message": refusal.get("message", code)}]}
        return None

    def _operation(
        self, kind: str, call: "Call", target: str, ready_s: float, error: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        name = f"operation-{uuid.uuid4().hex}"
        operation: dict[str, Any] = {"kind": "compute#operation", "name": name, "operationType": kind}
        operation |= {"targetLink": target} | ({"error": error} if error else {})
        self.operations[name] = operation | {"zone": call["zone"], "status": "PENDING", "_ready_s": ready_s}
        return self._seen(self.operations[name])

    def _seen(self, item: dict[str, Any]) -> dict[str, Any]:
        """Show an instance or operation as it is by now."""
        is_ready = item.get("_ready_s") is not None and time.monotonic() >= item["_ready_s"]
        done = {"status": "DONE", "progress": 100} if "operationType" in item else {"status": "RUNNING"}
        shown = item | done if is_ready else item
        return {key: value for key, value in shown.items() if not key.startswith("_")}

    def _find(self, among: dict[Any, Any], key: Any) -> Any:
        if key not in among:
            name = "/".join(key) if isinstance(key, tuple) else key
            raise GcpError(404, "notFound", f"The resource 'projects/{self.scenario['project']}/{name}' was not found")
        return among[key]

    # -- the test's own hand -------------------------------------------------------------------------------------------
    def change(self, call: "Call") -> dict[str, Any]:
        self.scenario |= call.body
        return {}

    def start_again(self, call: "Call") -> dict[str, Any]:
        self.__init__(call.body)  # type: ignore[misc]
        return {}

    def fault(self, method: str, path: str) -> dict[str, Any] | None:
        """Take the first fault that fits."""
        for fault in self.scenario.get("faults", []):
            fits = fault.get("method", method) == method and re.search(fault.get("path", ""), path)
            if fits and fault.get("times", 1) > 0:
                if "times" in fault:
                    fault["times"] -= 1
                return dict(fault)
        return None


ROUTES: tuple[tuple[str, str, Callable[[Cloud, "Call"], dict[str, Any]]], ...] = (
    ("GET", f"{COMPUTE}/regions", Cloud.regions),
    ("GET", f"{COMPUTE}/regions/(?P<region>[^/]+)", Cloud.region),
    ("GET", f"{COMPUTE}/zones", Cloud.zones),
    ("GET", f"{COMPUTE}/zones/(?P<zone>[^/]+)", Cloud.zone),
    ("GET", f"{COMPUTE}/zones/(?P<zone>[^/]+)/(?P<kind>machineTypes|acceleratorTypes)", Cloud.listed),
    (
        "GET",
        f"{COMPUTE}/zones/(?P<zone>[^/]+)/(?P<kind>machineTypes|acceleratorTypes)/(?P<name>[^/]+)",
        Cloud.one_listed,
    ),
    ("GET", f"{COMPUTE}/aggregated/(?P<kind>machineTypes|acceleratorTypes|instances)", Cloud.aggregated),
    ("GET", COMPUTE, Cloud.project),
    ("POST", f"{COMPUTE}/zones/(?P<zone>[^/]+)/instances", Cloud.insert),
    ("GET", f"{COMPUTE}/zones/(?P<zone>[^/]+)/instances", Cloud.instance_list),
    ("GET", f"{COMPUTE}/zones/(?P<zone>[^/]+)/instances/(?P<name>[^/]+)", Cloud.instance),
    ("DELETE", f"{COMPUTE}/zones/(?P<zone>[^/]+)/instances/(?P<name>[^/]+)", Cloud.delete),
    ("POST", f"{COMPUTE}/zones/(?P<zone>[^/]+)/instances/(?P<name>[^/]+)/setLabels", Cloud.set_labels),
    ("GET", f"{COMPUTE}/zones/(?P<zone>[^/]+)/operations", Cloud.operation_list),
    ("GET", f"{COMPUTE}/zones/(?P<zone>[^/]+)/operations/(?P<name>[^/]+)", Cloud.operation),
    ("GET", "/v1/services/(?P<service>[^/]+)/skus", Cloud.skus),
    ("POST", "/v[13]/projects/(?P<project>[^/:]+):testIamPermissions", Cloud.permissions),
    ("POST", "/_scenario", Cloud.change),
    ("PUT", "/_scenario", Cloud.start_again),
    ("POST", "/_preempt/(?P<zone>[^/]+)/(?P<name>[^/]+)", Cloud.preempt),
)


class Call:
    """One request, taken apart."""

    def __init__(self, cloud: Cloud, words: dict[str, str], query: dict[str, list[str]], body: dict[str, Any]) -> None:
        self.body = body
        self._cloud = cloud
        self._words = words
        self._query = {name: values[-1] for name, values in query.items()}
        if words.get("project", cloud.scenario["project"]) != cloud.scenario["project"]:
            raise GcpError(404, "notFound", f"The resource 'projects/{words['project']}' was not found")

    def __getitem__(self, word: str) -> str:
        return self._words[word]

    def window(self, size: str, token: str) -> tuple[int, int]:
        """Return offset and length of the page that is asked for."""
        most = self._cloud.scenario.get("page_size", 500)
        text = self._query.get(token, "0") or "0"
        if not text.isdigit():
            raise GcpError(400, "invalid", f"Invalid value for field 'pageToken': '{text}'")
        return int(text), max(1, min(most, int(self._query.get(size, 0) or most)))

    def page(self, kind: str, items: list[dict[str, Any]]) -> dict[str, Any]:
        """Return one page of a list, filtered."""
        return self.page_of_all(kind, [item for item in items if self.fits(item)])

    def page_of_all(self, kind: str, fitting: list[dict[str, Any]]) -> dict[str, Any]:
        """Return one page of a list."""
        offset, size = self.window("maxResults", "pageToken")
        found: dict[str, Any] = {"kind": kind, "items": fitting[offset : offset + size]}
        return found | ({"nextPageToken": str(offset + size)} if offset + size < len(fitting) else {})

    def fits(self, item: dict[str, Any]) -> bool:
        """`FIELD eq "REGEX"` (the whole value must match), `FIELD = VALUE`, or `FIELD:*` for any value."""
        text = self._query.get("filter", "")
        if not text:
            return True
        match = re.fullmatch(r'\(?([\w.-]+)(?:\s+|(?=:))(eq|ne|=|!=|:)\s*"?([^"]*)"?\)?', text)
        if not match:
            raise GcpError(
                400, "invalid", f"Invalid value for field 'filter': '{text}'. Invalid list filter expression."
            )
        field, how, value = match.groups()
        held: Any = item
        for name in field.split("."):
            held = held.get(name, "") if isinstance(held, dict) else ""
        if how == ":":
            return value == "*" and bool(held)
        is_same = bool(re.fullmatch(value, str(held))) if how in ("eq", "ne") else str(held) == value
        return is_same == (how in ("eq", "="))


class Handler(BaseHTTPRequestHandler):
    """HTTP in front of the cloud of this process."""

    cloud: Cloud
    lock = threading.Lock()
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    """One packet per small answer: two would wait 40 ms for each other."""

    def log_message(self, *_: object) -> None:
        """Say nothing on standard error."""

    def _serve(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        parts = urlsplit(self.path)
        body = json.loads(self.rfile.read(size) or b"{}") if parts.path != "/token" else self.rfile.read(size).decode()
        with self.lock:
            fault = None if parts.path.startswith("/_") else self.cloud.fault(self.command, self.path)
            if not parts.path.startswith("/_"):
                self.cloud.log.append([self.command, self.path, body])
        time.sleep((fault or {}).get("delay_s", 0))
        if fault and "body" in fault:
            self._send(fault.get("status") or 200, fault["body"].encode("utf-8", "surrogateescape"))
            return
        try:
            if fault and fault.get("status"):
                message = fault.get("message", f"fault {fault['status']}")
                raise GcpError(fault["status"], fault.get("reason", "fault"), message, fault.get("details"))
            status, answer = 200, self._answer(parts.path, parse_qs(parts.query), body)
        except GcpError as error:
            status, answer = error.status, error.body
        self._send(status, json.dumps(answer).encode(), (fault or {}).get("drip_s", 0))

    def _answer(self, path: str, query: dict[str, list[str]], body: Any) -> Any:
        with self.lock:
            if path == "/_log":
                return self.cloud.log
            for method, pattern, serve in ROUTES:
                match = re.fullmatch(pattern, unquote(path)) if method == self.command else None
                if match:
                    return serve(self.cloud, Call(self.cloud, match.groupdict(), query, body))
        if path == "/token":
            raise GcpError(400, "invalid_grant", "Token has been expired or revoked.")
        raise GcpError(404, "notFound", f"no such path: {path}")

    def _send(self, status: int, content: bytes, drip_s: float = 0) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json; charset=UTF-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            for at in range(len(content) if drip_s else 0):
                time.sleep(drip_s)
                self.wfile.write(content[at : at + 1])
                self.wfile.flush()
            self.wfile.write(b"" if drip_s else content)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = _serve


def main() -> None:
    """Serve until standard input closes, so that no stand-in outlives its test."""
    with open(sys.argv[1], encoding="utf-8") as file:
        Handler.cloud = Cloud(json.load(file))
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"http://127.0.0.1:{server.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
