"""SglangServer: one real SGLang server as a child, on GPUs of this machine or on its CPU.

It listens on loopback only: whoever reaches its control endpoints replaces its weights.
"""

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hexcloud.adapters.engines.client import EngineClient
from hexcloud.adapters.engines.model_folder import ModelFacts, read_model_facts
from hexcloud.adapters.engines.sglang_home import CPU_PLATFORM
from hexcloud.domain.errors import EngineError

START_S = 900.0
"""Until it is ready. On a GPU it loads the weights and captures graphs; on a CPU it takes 20 s alone, and over 200 s
were seen on two cores that others held."""
END_S = 2.0
"""From SIGTERM to SIGKILL. It holds nothing of value, and an interruption notice may leave no more."""
POLL_S = 0.2
HOST = "127.0.0.1"
CPU_TOKENS = 32_768
"""Tokens of KV cache on a CPU; a GPU's are what its memory holds."""
_TAIL_BYTES = 1500


class Device(StrEnum):
    """What computes."""

    CPU = "cpu"
    CUDA = "cuda"


def device_here() -> Device:
    """Return what this machine has: the driver's own device file is there exactly when a GPU can be used."""
    return Device.CUDA if Path("/dev/nvidiactl").exists() else Device.CPU


@dataclass(frozen=True)
class Launch:
    """One server: one replica of the plan."""

    python: Path
    """Interpreter of SGLang's own environment."""
    model: Path
    """Folder with `config.json` and the weights to begin with."""
    version: int
    """Of those weights."""
    device: Device
    slots: int
    """Requests that run at once."""
    seed: int
    log: Path
    """Where its output goes."""
    tp: int = 1
    """Tensor-parallel degree: GPUs that it takes, of all its machines."""
    first_gpu: int = 0
    nodes: int = 1
    """Machines that it takes, each with a process of this kind; only that of rank 0 listens."""
    rank: int = 0
    rendezvous: str = ""
    """`host:port` on the machine of rank 0 where they meet."""

    def argv(self, port: int) -> list[str]:
        """Return the command line. Ids go in and out, so no tokenizer is needed and no text is ever made."""
        flags = {
            "model-path": self.model,
            "weight-version": self.version,
            "host": HOST,
            "port": port,
            "device": self.device,
            "max-running-requests": self.slots,
            "random-seed": self.seed,
            "log-level-http": "warning",
        }
        flags |= self._cpu_flags() if self.device is Device.CPU else self._gpu_flags()
        if self.nodes > 1:
            flags |= {"nnodes": self.nodes, "node-rank": self.rank, "dist-init-addr": self.rendezvous}
        command = [str(self.python), "-I", "-m", "sglang.launch_server"]
        # Idle it would turn a whole core without `sleep-on-idle`.
        switches = ("skip-tokenizer-init", "skip-server-warmup", "sleep-on-idle", "enable-metrics")
        pairs = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
        return [*command, *pairs, *(f"--{name}" for name in switches)]

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return its environment: no hub is asked for anything, and /health never generates."""
        own = {"HF_HUB_OFFLINE": "1", "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false"}
        if self.device is Device.CPU:
            own["SGLANG_PLATFORM"] = CPU_PLATFORM
        if self.device is Device.CPU and self.nodes > 1:  # else every rank would want a NUMA node, and there is one
            own["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join([f"0-{(os.cpu_count() or 1) - 1}"] * self.nodes)
        return {**given, **own}

    def _cpu_flags(self) -> dict[str, object]:
        # fp32: `auto` would serve a checkpoint of fp32 in half precision, 0.02 off in each logprob.
        # Over machines a CPU has one rank on each.
        ranks = {"tp-size": self.nodes} if self.nodes > 1 else {}
        return {"dtype": "float32", "max-total-tokens": CPU_TOKENS, **ranks}

    def _gpu_flags(self) -> dict[str, object]:
        return {"dtype": "auto", "tp-size": self.tp, "base-gpu-id": self.first_gpu}


Wrap = Callable[[list[str]], list[str]]
"""Turns a command into one that does the same under some condition."""


class SglangServer:
    """Starts at once. The server is a handful of processes in a session of its own, which ends as a whole."""

    def __init__(self, launch: Launch, environment: Mapping[str, str], wrap: Wrap = list) -> None:
        """`wrap` may tie the server's life to ours. Raises EngineError for weights that no server could load."""
        self._launch = launch
        self._facts: ModelFacts = read_model_facts(launch.model)
        self._url, port = _free_address()
        self._ending, self._has_ended = threading.Lock(), False
        with launch.log.open("ab") as log:
            self._log_begins = log.tell()
            self._child = subprocess.Popen(
                wrap(launch.argv(port)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=launch.environment(environment),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its first process, and the name of its session and group."""
        return self._child.pid

    def client(self, is_given_up: Callable[[], bool] = lambda: False, within_s: float = START_S) -> EngineClient:
        """Return a client once the server is ready. Raises EngineError when it ends before, is late, or given up."""
        client = EngineClient(self._url, self._facts)
        gives_up_at = time.monotonic() + within_s
        while time.monotonic() < gives_up_at and not is_given_up():
            if (code := self._child.poll()) is not None:
                raise EngineError(f"sglang ended with code {code} before it was ready: {self._last_words()}")
            if client.is_ready():
                return client
            time.sleep(POLL_S)
        client.close()
        self.end()
        raise EngineError(f"sglang was not ready within {within_s:.0f} s: {self._last_words()}")

    def end(self) -> None:
        """End all its processes. May be called twice, and from several threads."""
        with self._ending:
            if self._has_ended:
                return  # its session's number may be somebody else's by now
            self._signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(END_S)
            self._signal(signal.SIGKILL)  # also those that outlive the first one
            self._child.wait()
            self._has_ended = True

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def _last_words(self) -> str:
        with self._launch.log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_begins, end - _TAIL_BYTES))
            tail = log.read().decode(errors="replace").strip()
        return f"{tail[-_TAIL_BYTES:]} (see {self._launch.log})"


def _free_address() -> tuple[str, int]:
    """Return a port that nobody has. Somebody may take it first: then the server ends, and the next has another."""
    with socket.create_server((HOST, 0)) as server:
        port = int(server.getsockname()[1])
    return f"http://{HOST}:{port}", port
