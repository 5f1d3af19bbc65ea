"""The trainer's head node: the coordinator in this process, the training process as a child, and their common end."""

import asyncio
import os
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from hexcloud.domain.errors import EngineError
from hexcloud.domain.plan import Role
from hexcloud.node.gang_member import stand_by
from hexcloud.node.identity import Identity, log_as_json, read_identity
from hexcloud.node.link_cap import link_cap
from hexcloud.node.presence import be_present
from hexcloud.node.trainer_process import TrainerProcess
from hexcloud.runtime.checkpoint_index import newest_checkpoint, next_epoch
from hexcloud.runtime.coordinator import Coordinator, Start
from hexcloud.runtime.coordinator_access import AccessList, token_sha256
from hexcloud.runtime.coordinator_app import serving
from hexcloud.runtime.probe import ProbeServer
from hexcloud.runtime.rollout_link import CoordinatorLink
from hexcloud.runtime.tasks import TASKS

LINGER_DONE_S = 30.0
"""A finished run can be read for so long by a controller that has yet to notice."""
LINGER_STOPPED_S = 5.0
"""A controller that stopped the run, or let it lapse, knows; rollout nodes still have to hear it."""
LAPSE_GRACE_S = 10.0
"""From the lapse of the spend lease to the end, whatever the trainer is doing: a checkpoint takes a second."""
LOOK_S = 0.2

log = structlog.get_logger()


def main() -> int:
    """Run the trainer's node of the current directory; return its exit code. Only the head has a controller's token."""
    directory = Path.cwd()
    identity = read_identity(directory, Role.TRAINER, os.environ)
    log_as_json(identity)
    is_head = bool(identity.controller_token)
    code = asyncio.run(_run(identity, directory) if is_head else stand_by(identity))
    log.info("node_ended", code=code)
    return code


def start_of(run_dir: Path) -> Start:
    """Return where the run goes on: at its newest whole checkpoint, in an epoch that none has, as the trainer does."""
    checkpoint = newest_checkpoint(run_dir)
    return Start(epoch=next_epoch(run_dir), version=checkpoint.version if checkpoint else 0)


async def _run(identity: Identity, directory: Path) -> int:
    spec = identity.spec
    access = AccessList(identity.controller_token, {spec.node_id: token_sha256(identity.token)})
    coordinator = Coordinator(spec, TASKS[spec.task], access, start_of(identity.run_dir))
    interrupted = asyncio.Event()
    for notice in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(notice, interrupted.set)
    async with AsyncExitStack() as stack:
        probes = ProbeServer(link_cap(spec))
        await probes.start(identity.host)
        stack.push_async_callback(probes.close)
        url = await stack.enter_async_context(serving(coordinator, identity.run_secret, identity.host))
        link = CoordinatorLink(spec.run_id, identity.run_dir, identity.run_secret, identity.token)
        await stack.enter_async_context(link)
        presence = asyncio.create_task(be_present(link, spec, f"{identity.host}:{probes.port}", link_cap(spec)))
        stack.callback(presence.cancel)
        trainer = TrainerProcess(coordinator, url, directory)
        stack.push_async_callback(trainer.end)
        training = asyncio.create_task(trainer.run())
        stack.callback(training.cancel)
        return await _until_over(coordinator, training, interrupted)


async def _until_over(coordinator: Coordinator, training: "asyncio.Task[None]", interrupted: asyncio.Event) -> int:
    """Return when this node should end, and its exit code: 1 when the trainer died for good, else 0."""
    notice = asyncio.create_task(interrupted.wait())
    overdue = asyncio.create_task(_overdue(coordinator))
    lingering = asyncio.create_task(_linger(coordinator, training))
    try:
        await asyncio.wait({notice, overdue, lingering}, return_when=asyncio.FIRST_COMPLETED)
        if lingering.done():
            lingering.result()
        else:
            log.warning("ending_early", interrupted=interrupted.is_set(), lapsed=coordinator.has_lapsed)
    except EngineError as error:
        log.error("trainer_lost", reason=str(error))
        return 1
    finally:
        for task in (notice, overdue, lingering):
            task.cancel()
    return 0


async def _overdue(coordinator: Coordinator) -> None:
    """Wait until the spend lease has lapsed, and then for as long as a checkpoint may take."""
    while not coordinator.has_lapsed:  # noqa: ASYNC110 - it is found by the coordinator's tick, a look at the clock
        await asyncio.sleep(LOOK_S)
    await asyncio.sleep(LAPSE_GRACE_S)


async def _linger(coordinator: Coordinator, training: "asyncio.Task[None]") -> None:
    """Wait for the training's end, then until everybody has had time to see it. Raises the training's error."""
    await training
    done_at_s = time.monotonic()
    while not coordinator.stop_reason and time.monotonic() - done_at_s < LINGER_DONE_S:  # noqa: ASYNC110 - as above
        await asyncio.sleep(LOOK_S)
    await asyncio.sleep(LINGER_STOPPED_S)
