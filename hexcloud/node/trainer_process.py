"""TrainerProcess: the training process as a child of the trainer's head node, restarted from the newest checkpoint."""

import asyncio
import os
import sys
from pathlib import Path

import structlog

from hexcloud.domain.errors import EngineError
from hexcloud.node.identity import NODE_TOKEN, child_environment
from hexcloud.node.tether import tethered
from hexcloud.runtime.coordinator import Coordinator

TRAINER = (sys.executable, "-m", "hexcloud.runtime.trainer")
COORDINATOR_URL = "HEXCLOUD_COORDINATOR_URL"
"""Where the trainer finds the coordinator beside it."""
LAST_WORDS_S = 1.5
"""For the checkpoint after an interruption notice, of the 2 s that such a notice may leave."""
MAX_RESTARTS = 3
"""In the life of a node. What kills a trainer four times is in the run, not in the machine."""

log = structlog.get_logger()


class TrainerProcess:
    """At most one training process at a time. Each takes an epoch of its own from the newest checkpoint."""

    def __init__(
        self, coordinator: Coordinator, url: str, token: str, directory: Path, argv: tuple[str, ...] = TRAINER
    ) -> None:
        """`url` and `token` are the trainer's way to the coordinator; `directory` holds `node.json`."""
        self._coordinator = coordinator
        self._needed = {NODE_TOKEN: token, COORDINATOR_URL: url}
        self._directory = directory
        self._argv = argv
        self._child: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        """Train until the run is finished. Raises EngineError when the trainer dies again and again."""
        for attempt in range(MAX_RESTARTS + 1):
            code = await self._run_once(attempt)
            if self._coordinator.is_finished:
                return
            log.error("trainer_died", attempt=attempt, code=code)
        raise EngineError(f"the trainer died {MAX_RESTARTS + 1} times")

    async def end(self, within_s: float = LAST_WORDS_S) -> None:
        """End the process, if it runs: with a checkpoint when it can write one in time."""
        if self._child is None or self._child.returncode is not None:
            return
        self._child.terminate()
        try:
            async with asyncio.timeout(within_s):
                await self._child.wait()
        except TimeoutError:
            self._child.kill()
            await self._child.wait()

    async def _run_once(self, attempt: int) -> int:
        log.info("trainer_start", attempt=attempt)
        # A group of its own: an interruption notice to the node's group reaches it through us, once.
        self._child = await asyncio.create_subprocess_exec(
            *tethered(list(self._argv)),
            stdin=asyncio.subprocess.DEVNULL,
            env=child_environment(os.environ, self._coordinator.spec.private_env, **self._needed),
            cwd=self._directory,
            process_group=0,
        )
        return await self._child.wait()
