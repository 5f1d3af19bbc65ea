"""EngineProcess: the embedded engine as a child of a rollout node."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from hexcloud.adapters.engines.client import EngineClient
from hexcloud.domain.command import NodeSpec
from hexcloud.domain.errors import EngineError
from hexcloud.node.identity import child_environment
from hexcloud.node.tether import tethered
from hexcloud.runtime.tasks import TASKS

START_S = 90.0
"""Importing torch takes 2 s alone and some ten on a machine where everything starts at once."""
POLL_S = 0.05


class EngineProcess:
    """At most one engine process at a time; its speed is capped to that of the machine it stands for."""

    def __init__(self, spec: NodeSpec, directory: Path) -> None:
        self._spec = spec
        self._directory = directory
        self._child: subprocess.Popen[bytes] | None = None
        self._clients: list[EngineClient] = []
        self._is_closed = False

    def start(self, weights: Path, version: int) -> EngineClient:
        """End the engine that runs, if any, and return one that serves these weights. Raises EngineError."""
        self._end()
        port_file = self._directory / "engine.json"
        port_file.unlink(missing_ok=True)
        # A group of its own: an interruption notice to the node's group must not end the engine before its last words.
        self._child = subprocess.Popen(
            tethered(self._command(weights, port_file)),
            stdin=subprocess.DEVNULL,
            env=child_environment(os.environ),
            process_group=0,
        )
        client = EngineClient(f"http://127.0.0.1:{self._await_port(self._child, port_file)}")
        self._clients.append(client)
        client.update_weights_from_disk(str(weights), version)
        return client

    def close(self) -> None:
        """End the engine at once, also one that another thread is starting now. It holds nothing of value."""
        self._is_closed = True
        self._end()
        for client in self._clients:  # only now: until the end somebody may still call a dead engine
            client.close()

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def _command(self, weights: Path, port_file: Path) -> list[str]:
        spec = self._spec
        command = [sys.executable, "-m", "hexcloud.adapters.engines.embedded"]
        command += ["--model-path", str(weights), "--port-file", str(port_file)]
        command += ["--max-running-requests", str(spec.slots), "--random-seed", str(spec.seed)]
        command += ["--parent-pid", str(os.getpid())]
        if spec.emulation is not None:
            command += ["--max-samples-per-s", str(spec.emulation.samples_per_s)]
            command += ["--mean-tokens-per-sample", str(TASKS[spec.task].mean_response_tokens)]
        return command

    def _await_port(self, child: "subprocess.Popen[bytes]", port_file: Path) -> int:
        gives_up_at = time.monotonic() + START_S
        while time.monotonic() < gives_up_at and not self._is_closed:
            if port_file.exists():
                return int(json.loads(port_file.read_text())["port"])
            if child.poll() is not None:
                raise EngineError(f"the engine ended with code {child.returncode} before it listened")
            time.sleep(POLL_S)
        self._end()
        raise EngineError(f"the engine did not listen within {START_S:.0f} s")
