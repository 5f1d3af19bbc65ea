"""EngineProcess: the embedded engine as a child of a rollout node."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from hexcloud.adapters.engines.client import EngineClient
from hexcloud.adapters.engines.model_folder import read_model_facts
from hexcloud.domain.command import NodeSpec
from hexcloud.domain.errors import EngineError
from hexcloud.node.identity import child_environment
from hexcloud.node.tether import tethered
from hexcloud.runtime.open_task import open_task

START_S = 90.0
"""Importing torch takes 2 s alone and some ten on a machine where everything starts at once."""
POLL_S = 0.05


class EngineProcess:
    """At most one engine process at a time; its speed is capped to that of the machine it stands for."""

    def __init__(self, spec: NodeSpec, directory: Path) -> None:
        self._spec = spec
        self._directory = directory
        self._child: subprocess.Popen[bytes] | None = None
        self._spare: subprocess.Popen[bytes] | None = None
        self._clients: list[EngineClient] = []
        self._is_closed = False

    def warm_up(self) -> None:
        """Start a process that imports what it needs while the first weights are still on their way."""
        self._spare = self._spawn()

    def start(self, weights: Path, version: int) -> EngineClient:
        """End the engine that runs, if any, and return one that serves these weights. Raises EngineError."""
        self._end(self._child)
        self._port_file.unlink(missing_ok=True)
        self._child, self._spare = self._spare or self._spawn(), None
        self._tell(self._child, weights)
        port = self._await_port(self._child)
        client = EngineClient(f"http://127.0.0.1:{port}", read_model_facts(weights))
        self._clients.append(client)
        client.update_weights_from_disk(str(weights), version)
        return client

    def close(self) -> None:
        """End the engine at once, also one that another thread is starting now. It holds nothing of value."""
        self._is_closed = True
        self._end(self._child)
        self._end(self._spare)
        for client in self._clients:  # only now: until the end somebody may still call a dead engine
            client.close()

    @property
    def _port_file(self) -> Path:
        return self._directory / "engine.json"

    def _end(self, child: "subprocess.Popen[bytes] | None") -> None:
        if child is None:
            return
        child.kill()
        child.wait()
        if child.stdin is not None:
            child.stdin.close()

    def _spawn(self) -> "subprocess.Popen[bytes]":
        # A group of its own: an interruption notice to the node's group must not end the engine before its last words.
        return subprocess.Popen(
            tethered(self._command()),
            stdin=subprocess.PIPE,
            env=child_environment(os.environ, self._spec.private_env),
            process_group=0,
        )

    def _tell(self, child: "subprocess.Popen[bytes]", weights: Path) -> None:
        assert child.stdin is not None  # it was opened as a pipe
        try:
            child.stdin.write(f"{weights}\n".encode())
            child.stdin.close()
        except BrokenPipeError as error:
            raise EngineError("the engine ended before it was told its weights") from error

    def _command(self) -> list[str]:
        spec = self._spec
        command = [sys.executable, "-m", "hexcloud.adapters.engines.embedded"]
        command += ["--model-path", "-", "--port-file", str(self._port_file)]
        command += ["--max-running-requests", str(spec.slots), "--random-seed", str(spec.seed)]
        command += ["--parent-pid", str(os.getpid())]
        task = open_task(spec.task, spec.weights)
        if spec.weights:  # the model may take far more than the task needs, and each slot's cache is that long
            command += ["--context-length", str(spec.task.max_prompt_tokens + task.max_new_tokens)]
        if spec.emulation is not None:
            command += ["--max-samples-per-s", str(spec.emulation.samples_per_s)]
            command += ["--mean-tokens-per-sample", str(task.mean_response_tokens)]
        return command

    def _await_port(self, child: "subprocess.Popen[bytes]") -> int:
        gives_up_at = time.monotonic() + START_S
        while time.monotonic() < gives_up_at and not self._is_closed:
            if self._port_file.exists():
                return int(json.loads(self._port_file.read_text())["port"])
            if child.poll() is not None:
                raise EngineError(f"the engine ended with code {child.returncode} before it listened")
            time.sleep(POLL_S)
        self._end(child)
        raise EngineError(f"the engine did not listen within {START_S:.0f} s")
