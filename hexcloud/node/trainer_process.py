"""TrainerProcess: the trainer's ranks on its head, restarted from the newest checkpoint when one is lost anywhere."""

import asyncio
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import structlog

from hexcloud.domain.errors import EngineError
from hexcloud.domain.world import World
from hexcloud.node.identity import NODE_TOKEN, child_environment
from hexcloud.node.rank_processes import TRAINER, RankProcesses, speaking_over
from hexcloud.node.tether import tethered
from hexcloud.runtime.coordinator import Coordinator

COORDINATOR_URL = "HEXCLOUD_COORDINATOR_URL"
"""Where rank 0 finds the coordinator beside it."""
LAST_WORDS_S = 1.5
"""For the checkpoint after an interruption notice, of the 2 s that such a notice may leave."""
MAX_RESTARTS = 3
"""Without a new version in between. What kills a trainer four times at one place is in the run, not in the machines."""
LOOK_S = 0.1

log = structlog.get_logger()


@dataclass(frozen=True)
class Way:
    """How rank 0 reaches the coordinator, and the others rank 0."""

    url: str
    token: str
    near: str = "127.0.0.1"
    """The head's address on the gang's network."""


class TrainerProcess:
    """At most one rank 0 at a time. Each takes an epoch of its own from the newest checkpoint."""

    def __init__(self, coordinator: Coordinator, way: Way, directory: Path, argv: tuple[str, ...] = TRAINER) -> None:
        """`directory` holds `node.json`."""
        self._coordinator = coordinator
        self._way = way
        self._directory = directory
        self._argv = argv
        self._others = RankProcesses(coordinator.spec, way.near, directory, 1, argv)
        self._child: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        """Train until the run is finished. Raises EngineError when the trainer dies again and again."""
        deaths, furthest = 0, -1
        while deaths <= MAX_RESTARTS:
            world = await self._world()
            code = await self._run_once(world)
            if self._coordinator.is_finished:
                return await self._others.end(LAST_WORDS_S)
            is_ours = code is not None
            log.error("trainer_died", generation=world.generation, code=code)
            version = self._coordinator.view().version
            deaths, furthest = (deaths + is_ours, furthest) if version <= furthest else (int(is_ours), version)
            if is_ours:
                self._coordinator.gang.restart()
        raise EngineError(f"the trainer died {MAX_RESTARTS + 1} times")

    async def end(self, within_s: float = LAST_WORDS_S) -> None:
        """End the processes that run: with a checkpoint when it can be written in time."""
        await self._end_first(signal.SIGTERM, within_s)
        await self._others.end()

    async def _world(self) -> World:
        """Wait until the gang is whole."""
        while (world := self._coordinator.gang.world) is None:  # noqa: ASYNC110 - it follows from what is heard
            await asyncio.sleep(LOOK_S)
        return world

    async def _run_once(self, world: World) -> int | None:
        """Return rank 0's exit code when it is over; None when it was ended because others were lost."""
        log.info("trainer_start", generation=world.generation, ranks=world.size)
        self._child = await self._start(world)
        ended = asyncio.create_task(self._child.wait())
        while not ended.done():
            wanted = self._coordinator.gang.world
            if wanted is not None and not wanted.before and wanted.generation > world.generation:
                await self._end_first(signal.SIGKILL, LAST_WORDS_S)
                return None
            await self._others.heed(wanted)
            await asyncio.wait({ended}, timeout=LOOK_S)
        return ended.result()

    async def _start(self, world: World) -> asyncio.subprocess.Process:
        needed = {NODE_TOKEN: self._way.token, COORDINATOR_URL: self._way.url, **speaking_over(self._way.near)}
        arguments = ("--world", world.model_dump_json(), "--host", self._way.near)
        # A group of its own: an interruption notice to the node's group reaches it through us, once.
        return await asyncio.create_subprocess_exec(
            *tethered([*self._argv, *arguments]),
            stdin=asyncio.subprocess.DEVNULL,
            env=child_environment(os.environ, self._coordinator.spec.private_env, **needed),
            cwd=self._directory,
            process_group=0,
        )

    async def _end_first(self, how: signal.Signals, within_s: float) -> None:
        if self._child is None or self._child.returncode is not None:
            return
        self._child.send_signal(how)
        try:
            async with asyncio.timeout(within_s):
                await self._child.wait()
        except TimeoutError:
            self._child.kill()
            await self._child.wait()
