"""Stands in for SGLang's server: has a child, as it has. What it does is in the file `mode` of its model."""

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


def flag(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        info = {"model_path": flag("--model-path"), "weight_version": flag("--weight-version")}
        self.wfile.write(json.dumps(info).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    mode = (Path(flag("--model-path")) / "mode").read_text()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    sys.stdout.write(f"{json.dumps({'pids': [os.getpid(), child.pid], 'env': dict(os.environ)})}\n")
    sys.stdout.flush()
    if mode == "ends":
        sys.stderr.write("no GPU was found\n")
        sys.exit(3)
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if mode == "hangs":
        time.sleep(600)
    with HTTPServer((flag("--host"), int(flag("--port"))), Handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
