"""A small real HTTP server in the place of AWS's and Google's metadata services."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class MetadataServer(ThreadingHTTPServer):
    """Answers what `aws` and `gcp` hold by name; everything else is not found."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.aws: dict[str, str] = {}
        self.gcp: dict[str, str] = {"preempted": "FALSE", "maintenance-event": "NONE"}
        self.tokens: set[str] = set()
        self.status = 0
        self.flavor = "Google"
        self.asked: list[str] = []

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def interrupt_aws(self, time: str, action: str = "terminate") -> None:
        self.aws["spot/instance-action"] = json.dumps({"action": action, "time": time})


class _Handler(BaseHTTPRequestHandler):
    server: MetadataServer

    def do_PUT(self) -> None:
        ttl = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
        if self.path != "/latest/api/token" or not ttl.isdecimal():
            return self.reply(400, "")
        token = f"token-{len(self.server.asked)}"
        self.server.tokens.add(token)
        return self.reply(200, token)

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.server.status:
            return self.reply(self.server.status, "trouble")
        if self.path.startswith("/latest/meta-data/"):
            is_known = self.headers.get("X-aws-ec2-metadata-token") in self.server.tokens
            return self.find(self.server.aws, "/latest/meta-data/") if is_known else self.reply(401, "")
        if self.headers.get("Metadata-Flavor") != "Google":
            return self.reply(403, "")
        return self.find(self.server.gcp, "/computeMetadata/v1/instance/")

    def find(self, known: dict[str, str], root: str) -> None:
        found = known.get(self.path.removeprefix(root))
        self.reply(404, "<html>not found</html>") if found is None else self.reply(200, found)

    def reply(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Metadata-Flavor", self.server.flavor)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def metadata_server() -> Iterator[MetadataServer]:
    server = MetadataServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(5)
