"""A server that answers as it is told: as an older SGLang, as a broken one, or never."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class OddServer:
    """What it answers by path (anything else is 404), and what it was asked."""

    url: str = ""
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    drip_s: float = 0.0
    """Seconds before each byte of an answer."""
    asked: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]


@contextmanager
def odd_server() -> Iterator[OddServer]:
    odd = OddServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            odd.asked.append((self.path, json.loads(body) if body else None))
            status, answer = odd.answers.get(self.path, (404, {"detail": "Not Found"}))
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            try:
                self.send(content)
            except OSError:
                return  # nobody listens any more

        do_GET = do_POST

        def send(self, content: bytes) -> None:
            if not odd.drip_s:
                self.wfile.write(content)
                return
            for byte in content:
                time.sleep(odd.drip_s)
                self.wfile.write(bytes([byte]))

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        odd.url = f"http://127.0.0.1:{server.server_port}"
        yield odd
        server.shutdown()
