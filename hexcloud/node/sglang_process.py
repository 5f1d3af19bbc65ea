"""SglangProcess: the SGLang servers of a rollout node, in the shape of EngineProcess."""

import os
import zlib
from pathlib import Path

import structlog

from hexcloud.adapters.engines.client import EngineClient
from hexcloud.adapters.engines.replicas import Replicas
from hexcloud.adapters.engines.sglang import Device, Launch, SglangServer, device_here
from hexcloud.adapters.engines.sglang_home import SglangHome, find_sglang
from hexcloud.domain.command import NodeSpec
from hexcloud.node.identity import child_environment
from hexcloud.node.tether import tethered
from hexcloud.ports import Engine

log = structlog.get_logger()


class SglangProcess:
    """One server for each replica of the plan, or one on the CPU of a machine that has no GPU or is emulated.

    An emulated machine's speed is not imposed on SGLang: it is as fast as the machine it really runs on.
    """

    def __init__(self, spec: NodeSpec, directory: Path) -> None:
        """Raises ConfigError where SGLang is not installed."""
        self._spec = spec
        self._directory = directory
        self._home: SglangHome = find_sglang(os.environ)
        self._device = Device.CPU if spec.emulation is not None else device_here()
        if self._device is Device.CPU:
            self._home.require_cpu()
        self._servers: list[SglangServer] = []
        self._clients: list[EngineClient] = []
        self._together: list[Replicas] = []
        self._is_closed = False

    def warm_up(self) -> None:
        """Do nothing: a server has no use before its weights are there."""

    def start(self, weights: Path, version: int) -> Engine:
        """End the servers that run, if any, and return an engine that serves these weights. Raises EngineError."""
        self._end_servers()
        count = self._spec.replicas if self._device is Device.CUDA else 1
        try:
            for index in range(count):
                self._servers.append(self._server(self._launch(weights, version, index, count)))
            clients = [server.client(is_given_up=lambda: self._is_closed) for server in self._servers]
        except BaseException:
            self._end_servers()
            raise
        log.info("sglang_ready", version=self._home.version, device=self._device, replicas=count, tp=self._spec.tp)
        self._clients += clients
        if count == 1:
            return clients[0]
        self._together.append(Replicas(clients))
        return self._together[-1]

    def close(self) -> None:
        """End the servers at once, also ones that another thread is starting now."""
        is_first, self._is_closed = not self._is_closed, True
        self._end_servers()
        if is_first:
            made, mixed = (sum(getattr(client, name) for client in self._clients) for name in ("made", "mixed"))
            log.info("sglang_ended", generations=made, of_several_versions=mixed)
        for replicas in self._together:  # only now: until the end somebody may still call a dead engine
            replicas.close()
        for client in self._clients:
            client.close()

    def _server(self, launch: Launch) -> SglangServer:
        environment = child_environment(os.environ, self._spec.private_env)
        return SglangServer(launch, environment, tethered)

    def _launch(self, weights: Path, version: int, index: int, count: int) -> Launch:
        spec = self._spec
        return Launch(
            python=self._home.python,
            model=weights.absolute(),
            version=version,
            device=self._device,
            slots=max(1, spec.slots // count),
            seed=_seed(spec, index, version),
            log=self._directory / f"sglang-{index}.log",
            tp=spec.tp,
            first_gpu=index * spec.tp,
        )

    def _end_servers(self) -> None:
        for server in self._servers:
            server.end()
        self._servers.clear()


def _seed(spec: NodeSpec, index: int, version: int) -> int:
    """Return a seed of this server's own: of equal ones the samples of a group would be equal, too."""
    return zlib.crc32(f"{spec.seed}/{spec.node_id}/{index}/{version}".encode()) & 0x7FFFFFFF
