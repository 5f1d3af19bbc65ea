"""A region's store of a test's own: a folder behind a web server that honours ranges, and misbehaves when told to."""

import re
import threading
import time
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from hexcloud.domain.errors import StoreError


class WebStore:
    """Implements WeightStore. `status` other than 200 is answered to every reader."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.status = 200
        self.drip_s = 0.0
        """Seconds after each byte of an answer; 0: none."""
        self.refuses_writing = self.refuses_signing = False
        self.is_open = threading.Event()
        """As long as it is not, writing hangs."""
        self.is_open.set()
        self.uploads: list[str] = []
        self.reads: list[tuple[str, int]] = []
        """Name and offset of each."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def file(self, name: str) -> Path:
        return self.folder / name.replace("/", "-")

    def upload(self, name: str, path: str) -> None:
        self.is_open.wait()
        if self.refuses_writing:
            raise StoreError("access is denied (403)")
        self.file(name).write_bytes(Path(path).read_bytes())
        self.uploads.append(name)

    def place(self, name: str, for_s: int) -> str:
        if self.refuses_signing:
            raise StoreError("no key to sign with")
        return f"http://127.0.0.1:{self._server.server_port}/{name}?signature=of-a-key&for={for_s}"

    def list(self, prefix: str) -> tuple[str, ...]:
        return tuple(sorted(f"{prefix}/{path.name.removeprefix(prefix + '-')}" for path in self.folder.iterdir()))

    def delete(self, names: tuple[str, ...]) -> None:
        for name in names:
            self.file(name).unlink(missing_ok=True)


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, store: WebStore, *rest: Any) -> None:
        self._store = store
        super().__init__(*rest)

    def do_GET(self) -> None:
        name = self.path.partition("?")[0].lstrip("/")
        file = self._store.file(name)
        if self._store.status != 200 or not file.exists():
            self.send_error(self._store.status if self._store.status != 200 else 404)
            return
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("range", ""))
        offset, content = int(asked[1]) if asked else 0, file.read_bytes()
        self._store.reads.append((name, offset))
        self.send_response(206 if asked else 200)
        self.send_header("content-length", str(len(content) - offset))
        self.end_headers()
        if not self._store.drip_s:
            self.wfile.write(content[offset:])
            return
        with suppress(OSError):  # nobody listens any more
            for byte in content[offset:]:
                self.wfile.write(bytes([byte]))
                time.sleep(self._store.drip_s)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
