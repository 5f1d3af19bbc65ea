"""SglangProcess: the SGLang servers of a rollout node, in the shape of EngineProcess.

Of a replica over several machines each has a server of its own, and they meet (`--nnodes`); that of the head serves. A
server that loses another ends by itself, so the head's keeper starts all of them anew.
"""

import os
import socket
import zlib
from dataclasses import replace
from pathlib import Path

import structlog

from hexcloud.adapters.engines.client import EngineClient
from hexcloud.adapters.engines.replicas import Replicas
from hexcloud.adapters.engines.sglang import Device, Launch, SglangServer, device_here
from hexcloud.adapters.engines.sglang_home import SglangHome, find_sglang
from hexcloud.domain.command import NodeSpec
from hexcloud.domain.replica import OrderKind, ReplicaOrder
from hexcloud.node.identity import child_environment
from hexcloud.node.rank_processes import speaking_over
from hexcloud.node.tether import tethered
from hexcloud.ports import Engine
from hexcloud.runtime.replica_line import ReplicaHead

log = structlog.get_logger()


class _Wide(Replicas):
    """An engine over several machines: a version is handed on to all of them before it is loaded."""

    def __init__(self, engine: Engine, head: ReplicaHead) -> None:
        super().__init__([engine])
        self._head = head

    def update_weights_from_disk(self, path: str, version: int) -> None:
        """Load the folder everywhere. Raises EngineError when a machine does not have it."""
        self._head.hand_on(Path(path).absolute())
        super().update_weights_from_disk(str(Path(path).absolute()), version)


class SglangProcess:
    """One server for each replica of the plan, or one on the CPU of a machine that has no GPU or is emulated.

    An emulated machine's speed is not imposed on SGLang: it is as fast as the machine it really runs on.
    """

    def __init__(
        self, spec: NodeSpec, directory: Path, near: str = "127.0.0.1", head: ReplicaHead | None = None
    ) -> None:
        """Raises ConfigError where SGLang is not installed.

        `near` is this machine's address among those of its replica, which `head` leads.
        """
        self._spec = spec
        self._near, self._head = near, head
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
        rendezvous = self._rally(weights.absolute(), version)
        try:
            for index in range(count):
                self._servers.append(self._server(self._launch(weights, version, index, count, rendezvous)))
            clients = [server.client(is_given_up=lambda: self._is_closed) for server in self._servers]
        except BaseException:
            self._end_servers()
            raise
        log.info("sglang_ready", version=self._home.version, device=self._device, replicas=count, tp=self._spec.tp)
        self._clients += clients
        if self._head is not None:
            self._together.append(_Wide(clients[0], self._head))
            return self._together[-1]
        if count == 1:
            return clients[0]
        self._together.append(Replicas(clients))
        return self._together[-1]

    def start_part(self, order: ReplicaOrder) -> None:
        """Start this machine's part of an engine that the replica's head serves. Raises EngineError."""
        self._end_servers()
        launch = self._launch(Path(order.folder), order.version, 0, 1, order.rendezvous)
        self._servers.append(self._server(replace(launch, seed=order.seed, slots=order.slots)))

    def end_part(self) -> None:
        """End it."""
        self._end_servers()

    def _rally(self, weights: Path, version: int) -> str:
        """Let the other machines of the replica start their part; return where all meet. Raises EngineError."""
        if self._head is None:
            return ""
        self._head.hand_on(weights)
        with socket.create_server((self._near, 0)) as server:
            rendezvous = f"{self._near}:{server.getsockname()[1]}"
        order = ReplicaOrder(
            kind=OrderKind.START,
            folder=str(weights),
            version=version,
            seed=_seed(self._spec, 0, version),
            slots=self._spec.slots,
            rendezvous=rendezvous,
        )
        self._head.start(order)
        return rendezvous

    def close(self) -> None:
        """End the servers at once, also ones that another thread is starting now."""
        is_first, self._is_closed = not self._is_closed, True
        if self._head is not None:
            self._head.close()
        self._end_servers()
        if is_first:
            made, mixed = (sum(getattr(client, name) for client in self._clients) for name in ("made", "mixed"))
            log.info("sglang_ended", generations=made, of_several_versions=mixed)
        for replicas in self._together:  # only now: until the end somebody may still call a dead engine
            replicas.close()
        for client in self._clients:
            client.close()

    def _server(self, launch: Launch) -> SglangServer:
        over = speaking_over(self._near) if launch.nodes > 1 else {}
        environment = child_environment(os.environ, self._spec.private_env, **over)
        return SglangServer(launch, environment, tethered)

    def _launch(self, weights: Path, version: int, index: int, count: int, rendezvous: str = "") -> Launch:
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
            nodes=spec.gang if rendezvous else 1,
            rank=spec.rank,
            rendezvous=rendezvous,
        )

    def _end_servers(self) -> None:
        for server in self._servers:
            server.end()
        self._servers.clear()


def _seed(spec: NodeSpec, index: int, version: int) -> int:
    """Return a seed of this server's own: of equal ones the samples of a group would be equal, too."""
    return zlib.crc32(f"{spec.seed}/{spec.node_id}/{index}/{version}".encode()) & 0x7FFFFFFF
