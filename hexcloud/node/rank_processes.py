"""RankProcesses: the trainer's ranks on one machine, but for rank 0, started and ended as the wanted world says.

They get no token and no address of the coordinator: rank 0 tells them all they need.
"""

import asyncio
import os
import sys
import time
from pathlib import Path

import psutil
import structlog

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.world import World
from hexcloud.node.identity import child_environment
from hexcloud.node.tether import tethered

TRAINER = (sys.executable, "-m", "hexcloud.runtime.trainer")
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""By what name gloo and NCCL are told over which network ranks speak; left to themselves they ask the host's name."""

UP_S = 240.0
"""For a rank to be up, which is to have loaded torch and no more. One that takes longer hangs: nobody waits for it any
more, but it bills."""

log = structlog.get_logger()


class RankProcesses:
    """Processes of one machine. `first` is the first place that is started here: the head's place 0 is rank 0."""

    def __init__(self, spec: NodeSpec, near: str, directory: Path, first: int = 0, argv: tuple[str, ...] = TRAINER):
        """`near` is this machine's address on the gang's network; `directory` holds `node.json`."""
        self._spec = spec
        self._directory = directory
        self._first = first
        self._argv = argv
        self._environment = child_environment(os.environ, spec.private_env, **speaking_over(near))
        self._children: list[asyncio.subprocess.Process] = []
        self._generation = -1
        """Of the newest world that was heeded."""
        self._awaited: list[Path] = []
        """Signs of life that have yet to come."""
        self._since_s = 0.0

    async def heed(self, world: World | None) -> None:
        """Do what a wanted world means here; may be told again and again."""
        if world is None or world.generation <= self._generation:
            return
        is_joining = self._spec.node_id in world.nodes and self._spec.node_id not in world.before
        if self._children and (is_joining or not world.before):
            await self.end()  # a new beginning, or another change than they waited for: what they hold is of no use
        if is_joining and not world.store:
            return  # rank 0 has yet to say where it is met
        self._generation = world.generation
        if is_joining:
            places = range(self._first, world.ranks)
            self._awaited = [self._directory / world.sign_of_life(place) for place in places]
            self._since_s = time.monotonic()
            for sign in self._awaited:
                sign.unlink(missing_ok=True)  # of an earlier life on this machine
            for place in places:
                self._children.append(await self._start(world, place))

    @property
    def are_running(self) -> bool:
        """Does any of them live?"""
        return any(child.returncode is None for child in self._children)

    @property
    def are_lost(self) -> bool:
        """Has one of them failed, or not come up in time?"""
        return any(child.returncode for child in self._children) or self._are_late

    @property
    def _are_late(self) -> bool:
        self._awaited = [sign for sign in self._awaited if not sign.exists()]
        return bool(self._awaited) and time.monotonic() - self._since_s > UP_S

    async def end(self, within_s: float = 0.0) -> None:
        """Give them time to end by themselves, as they do when their machine is released, then end them."""
        waiting = [asyncio.create_task(child.wait()) for child in self._children]
        if waiting:
            await asyncio.wait(waiting, timeout=within_s)
        for child in self._children:
            if child.returncode is None:
                child.kill()
        if waiting:
            await asyncio.wait(waiting)
        self._children, self._awaited = [], []

    async def _start(self, world: World, place: int) -> asyncio.subprocess.Process:
        log.info("rank_start", generation=world.generation, place=place)
        arguments = ("--world", world.model_dump_json(), "--place", str(place))
        return await asyncio.create_subprocess_exec(
            *tethered([*self._argv, *arguments]),
            stdin=asyncio.subprocess.DEVNULL,
            env=self._environment,
            cwd=self._directory,
            process_group=0,
        )


def speaking_over(near: str) -> dict[str, str]:
    """Return the variables by which ranks speak over the network of this address; none when no interface has it."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address == near for address in addresses):
            return dict.fromkeys(INTERFACES, name)
    return {}
