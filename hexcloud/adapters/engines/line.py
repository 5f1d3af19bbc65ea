"""EngineLine: one engine's HTTP API as calls that end in time, each with an answer or with an EngineError.

An answer is believed when it is whole, small enough and no error: SGLang says some of its errors with HTTP 200.
"""

import json
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import httpx

from hexcloud.domain.errors import EngineError

CONTROL_TIMEOUT_S = 120.0
"""Loading weights included; an engine that takes longer is as good as lost."""
LOOK_TIMEOUT_S = 2.0
"""For a look as a whole, however its answer comes."""
_MOST_STATUS_BYTES = 1024
MAX_ANSWER_BYTES = 1 << 30
"""A thousand samples of 32,768 tokens with logprobs, as JSON, and some."""
_TOLD = 500
"""Letters of an engine's own words that an error repeats."""


class EngineRefusedError(EngineError):
    """The engine answers, and the answer is no."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status; 200 of an error told as a success."""


class EngineLine:
    """Calls to one engine at `url`. Thread-safe, as httpx.Client is."""

    def __init__(self, url: str) -> None:
        self.url = url
        # Trust no proxy settings of the environment: the engine is a neighbour on the same machine.
        self._http = httpx.Client(base_url=url, timeout=CONTROL_TIMEOUT_S, trust_env=False)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ask(self, method: str, path: str, body: object = None, timeout_s: float = CONTROL_TIMEOUT_S) -> Any:
        """Return the JSON of an answer. Raises EngineError, of the kind EngineRefusedError when the engine said no."""
        content = self._call(method, path, body, timeout_s)
        try:
            answer = json.loads(content)
        except ValueError as error:
            raise EngineError(f"the answer of {path} is no JSON: {_text(content)!r}") from error
        _require_no_fault(path, answer)
        return answer

    def tell(self, path: str, body: object, timeout_s: float = CONTROL_TIMEOUT_S) -> None:
        """Post a command whose answer, if it has any, says no more than whether it worked. Raises EngineError."""
        content = self._call("POST", path, body, timeout_s)
        try:
            answer = json.loads(content)
        except ValueError:  # nothing, or a sentence
            return
        _require_no_fault(path, answer)

    def look(self, path: str) -> int | None:
        """Return the HTTP status of a GET, or None when nobody answers soon. Never raises."""
        try:
            return None if self._http.is_closed else _status_of(self.url, path, LOOK_TIMEOUT_S)
        except (OSError, ValueError):
            return None

    def _call(self, method: str, path: str, body: object, timeout_s: float) -> bytes:
        try:
            status, content = self._exchange(method, path, body, timeout_s)
        except (httpx.HTTPError, RuntimeError) as error:
            raise EngineError(f"{path} of the engine at {self.url} failed: {error!r}") from error
        if not 200 <= status < 300:
            raise EngineRefusedError(f"{path} was refused with HTTP {status}: {_text(content)}", status)
        return content

    def _exchange(self, method: str, path: str, body: object, timeout_s: float) -> tuple[int, bytes]:
        """Read an answer piece by piece: httpx's own limit is for each piece, so a dripping engine would never end."""
        gives_up_at, content = time.monotonic() + timeout_s, bytearray()
        with self._http.stream(method, path, json=body, timeout=timeout_s) as response:
            for piece in response.iter_bytes():
                content += piece
                if len(content) > MAX_ANSWER_BYTES:
                    raise EngineError(f"{path} of the engine at {self.url} answers with over {MAX_ANSWER_BYTES} bytes")
                if time.monotonic() > gives_up_at:
                    raise EngineError(f"{path} of the engine at {self.url} did not end within {timeout_s:.0f} s")
            return response.status_code, bytes(content)


def _status_of(url: str, path: str, within_s: float) -> int:
    """GET a path and return the status in time, however it comes: httpx would wait for each byte anew.

    Raises OSError when there is none in time, and ValueError for one that is no number.
    """
    ends_at_s, address = time.monotonic() + within_s, urlsplit(url)
    host, port, line = address.hostname or "", address.port or 80, b""
    with socket.create_connection((host, port), within_s) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        while b"\r\n" not in line:
            connection.settimeout(max(1e-3, ends_at_s - time.monotonic()))
            piece = connection.recv(_MOST_STATUS_BYTES)
            line += piece
            if not piece or len(line) > _MOST_STATUS_BYTES or time.monotonic() > ends_at_s:
                raise OSError(f"{path} of {url} has no status in time")
    return int(line.partition(b" ")[2][:3])


def _require_no_fault(path: str, answer: object) -> None:
    if not isinstance(answer, dict):
        return
    if answer.get("object") == "error" or answer.get("error") or answer.get("success") is False:
        words = answer.get("message") or answer.get("error")
        raise EngineRefusedError(f"{path} failed, though it answered with HTTP 200: {str(words)[:_TOLD]}", 200)


def _text(content: bytes) -> str:
    return content[:_TOLD].decode(errors="replace")
