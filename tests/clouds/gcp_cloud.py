"""GcpCloud: the stand-in for Google Cloud as its own process, and how a test speaks to it."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexcloud.adapters.clouds.gcp_access import OVERRIDE, PROJECT, GcpAccess, open_access

SERVER = Path(__file__).with_name("gcp_server.py")


@dataclass(frozen=True)
class GcpCloud:
    """A running stand-in."""

    url: str
    project: str

    @property
    def environ(self) -> dict[str, str]:
        """What a program needs in its environment to speak to it."""
        return {PROJECT: self.project, f"{OVERRIDE}COMPUTE": self.url}

    def access(self, credentials: Any = None) -> GcpAccess:
        return open_access(credentials, self.environ)

    def change(self, **scenario: object) -> None:
        """Replace keys of the scenario."""
        self._send("/_scenario", json.dumps(scenario).encode())

    def start_again(self, scenario: dict[str, Any]) -> None:
        """Forget everything."""
        self._send("/_scenario", json.dumps(scenario).encode(), "PUT")

    def preempt(self, zone: str, instance: str) -> None:
        """Take a spot machine away."""
        self._send(f"/_preempt/{zone}/{instance}", b"{}")

    def read(self, path: str) -> str:
        """Return an answer as it is sent."""
        return self._send(path).decode()

    def asked(self, word: str = "") -> list[str]:
        """Return the paths asked for so far that hold a word."""
        return [path for _, path, _ in json.loads(self._send("/_log")) if word in path]

    def _send(self, path: str, body: bytes | None = None, method: str | None = None) -> bytes:
        request = urllib.request.Request(self.url + path, data=body, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            content: bytes = answer.read()
            return content


@contextmanager
def gcp_cloud(scenario: dict[str, Any], folder: Path) -> Iterator[GcpCloud]:
    """Run a stand-in; it ends when its standard input closes, also when the test dies."""
    file = folder / "gcp.json"
    file.write_text(json.dumps(scenario))
    command = [sys.executable, str(SERVER), str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None and server.stdout is not None
        try:
            yield GcpCloud(server.stdout.readline().strip(), scenario["project"])
        finally:
            server.stdin.close()
            server.wait(timeout=10)
