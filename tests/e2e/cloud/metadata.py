"""What an EC2 machine reads at 169.254.169.254 (IMDSv2): who it is, its role's keys, and whether it will be taken."""

import json
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

TOKEN_PATH = "/latest/api/token"
ROLE = "skypilot-v1"


class Facts(NamedTuple):
    """One machine and what the scenario says of it."""

    instance: dict[str, Any]
    """As DescribeInstances has it."""
    action: dict[str, str] | None
    """{"action": "terminate", "time": ISO}: the interruption notice."""
    rebalance_at: str | None
    """ISO time of the rebalance recommendation."""


Who = Callable[[str], Facts | None]
"""The machine at an address, or None."""


def document(facts: Facts, path: str) -> str | None:
    """Return what a path below /latest/ says; None where it is not there."""
    instance = facts.instance
    zone = instance["Placement"]["AvailabilityZone"]
    plain: dict[str, str | None] = {
        "meta-data/instance-id": instance["InstanceId"],
        "meta-data/instance-type": instance["InstanceType"],
        "meta-data/instance-life-cycle": instance.get("InstanceLifecycle", "on-demand"),
        "meta-data/local-ipv4": instance["PrivateIpAddress"],
        "meta-data/placement/availability-zone": zone,
        "meta-data/placement/region": zone[:-1],
        "meta-data/spot/instance-action": json.dumps(facts.action) if facts.action else None,
        "meta-data/spot/termination-time": facts.action["time"] if facts.action else None,
        "meta-data/events/recommendations/rebalance": (
            json.dumps({"noticeTime": facts.rebalance_at}) if facts.rebalance_at else None
        ),
        "meta-data/iam/security-credentials/": ROLE,
        f"meta-data/iam/security-credentials/{ROLE}": _keys(),
    }
    return plain.get(path.removeprefix("/latest/"))


def _keys() -> str:
    until = datetime.fromtimestamp(time.time() + 6 * 3600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    keys = {"AccessKeyId": "ASIABEDROLE", "SecretAccessKey": "made-up", "Token": "made-up"}
    return json.dumps({"Code": "Success", "Type": "AWS-HMAC", **keys, "Expiration": until})


def server(host: str, port: int, who: Who) -> ThreadingHTTPServer:
    """Return a server that knows its callers by their address, and answers nobody without a token of its own."""
    tokens: set[str] = set()

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            if self.path != TOKEN_PATH or "X-aws-ec2-metadata-token-ttl-seconds" not in self.headers:
                self._answer(400, "")
                return
            token = secrets.token_urlsafe(16)
            tokens.add(token)
            self._answer(200, token)

        def do_GET(self) -> None:
            facts = who(self.client_address[0])
            if self.headers.get("X-aws-ec2-metadata-token") not in tokens:
                self._answer(401, "")
                return
            said = document(facts, self.path) if facts else None
            self._answer(404 if said is None else 200, said or "")

        def _answer(self, status: int, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return ThreadingHTTPServer((host, port), Handler)
