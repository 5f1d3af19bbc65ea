"""The trainer's head node: the coordinator in this process, the training process as a child, and their common end."""

import asyncio
import os
import signal
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.errors import ConfigError, EngineError
from hexcloud.domain.messages import INTERRUPTION, Notice
from hexcloud.domain.plan import Role
from hexcloud.domain.pointer import sign_pointer
from hexcloud.node.address import Place, find_place
from hexcloud.node.gang_member import stand_by
from hexcloud.node.identity import Identity, log_as_json, read_identity
from hexcloud.node.link_cap import link_cap
from hexcloud.node.notice import watching
from hexcloud.node.presence import Presence, be_present
from hexcloud.node.startup import startup
from hexcloud.node.stored_run import StoredRun, claim_run
from hexcloud.node.trainer_process import LAST_WORDS_S, TrainerProcess, Way
from hexcloud.runtime.checkpoint_index import drawn_prompts, newest_checkpoint, next_epoch
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.coordinator_access import AccessList, token_sha256
from hexcloud.runtime.coordinator_app import serving
from hexcloud.runtime.coordinator_door import Door
from hexcloud.runtime.coordinator_start import Start
from hexcloud.runtime.coordinator_stores import StoredCopies, WeightStore
from hexcloud.runtime.open_task import open_task
from hexcloud.runtime.probe import ProbeServer
from hexcloud.runtime.rollout import LEAVE_S
from hexcloud.runtime.rollout_link import CoordinatorLink

LINGER_DONE_S = 30.0
"""A finished run can be read for so long by a controller that has yet to notice."""
LINGER_STOPPED_S = 5.0
"""A controller that stopped the run, or let it lapse, knows; rollout nodes still have to hear it."""
LAPSE_GRACE_S = 10.0
"""From the lapse of the spend lease to the end, whatever the trainer is doing: a checkpoint takes a second."""
STORE_GRACE_S = 60.0
"""So much longer when the checkpoint and the result still travel to the run's store."""
FLUSH_S = 10.0
"""For that, of a machine that is told to end and not when."""
LOOK_S = 0.2

log = structlog.get_logger()


def main() -> int:
    """Run the trainer's node of the current directory; return its exit code. Only the head has a controller's token."""
    directory = Path.cwd()
    identity = read_identity(directory, Role.TRAINER, os.environ)
    log_as_json(identity)
    is_head = bool(identity.controller_token)
    code = asyncio.run(_run(identity, directory) if is_head else stand_by(identity, directory))
    log.info("node_ended", code=code)
    return code


def start_of(run_dir: Path) -> Start:
    """Return where the run goes on: at its newest whole checkpoint, in an epoch that none has, as the trainer does."""
    checkpoint = newest_checkpoint(run_dir)
    if checkpoint is None:
        return Start(epoch=next_epoch(run_dir))
    return Start(epoch=next_epoch(run_dir), version=checkpoint.version, cursor=drawn_prompts(checkpoint))


async def _run(identity: Identity, directory: Path) -> int:
    """Run the head: everything it starts ends before it does, in the order in which others depend on it."""
    spec = identity.spec
    interrupted = asyncio.Event()
    for notice in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(notice, interrupted.set)
    identity.run_dir.mkdir(parents=True, exist_ok=True)
    place = await find_place(spec.notice, os.environ)
    stored = await claim_run(identity)
    access = AccessList(identity.controller_token, {spec.node_id: token_sha256(identity.token)})
    coordinator = Coordinator(spec, open_task(spec.task, spec.weights), access, start_of(identity.run_dir))
    async with AsyncExitStack() as stack:
        if stored is not None:
            stored.begin(coordinator, interrupted.set)
            stack.callback(stored.close)
        door, tell = door_of(identity, place), stored.point if stored is not None else None
        url = await stack.enter_async_context(serving(coordinator, identity.run_secret, door, tell))
        beside = sign_pointer(spec.run_id, url, coordinator.epoch, identity.run_secret)
        link = CoordinatorLink(lambda: beside, identity.token, spec.ca_pem)
        await stack.enter_async_context(link)
        probed_at = await _probed_at(stack, door, url, spec)
        begin_copies(coordinator)
        stack.push_async_callback(coordinator.weights.copies.close)
        presence = Presence(spec, probed_at, link_cap(spec), partial(startup, directory))
        present = asyncio.create_task(be_present(link, presence))
        stack.callback(present.cancel)
        trainer = TrainerProcess(coordinator, Way(url, identity.token, place.near), directory)
        stack.push_async_callback(trainer.end)
        training = asyncio.create_task(trainer.run())
        stack.callback(training.cancel)
        await stack.enter_async_context(watching(spec.notice, partial(_hear, presence, interrupted)))
        code = await _until_over(coordinator, _linger(coordinator, training, stored), interrupted)
        await _put_away(trainer, stored, presence.notice)
        return code


def door_of(identity: Identity, place: Place) -> Door:
    """Return where the coordinator listens and how it proves itself. Raises ConfigError when it cannot."""
    tls = None
    if identity.tls_key:
        from hexcloud.adapters.certificates import server_context  # here: only a head that others dial needs it

        tls = server_context(identity.certificate, identity.tls_key)
    return Door(place.host, identity.spec.coordinator_port, place.address, tls)


def begin_copies(coordinator: Coordinator) -> None:
    """Let weights go through the stores of regions, if the run has any; one that cannot be opened here is named."""
    if not coordinator.spec.weights_stores:
        return
    from hexcloud.adapters.weight_store import open_weight_store  # here: most runs have no such store

    stores: dict[str, WeightStore] = {}
    trouble = {}
    for region, url in coordinator.spec.weights_stores.items():
        try:
            stores[region] = open_weight_store(url, region)
        except ConfigError as error:
            trouble[region] = str(error)
            log.error("weights_store_failed", region=region, reason=str(error))
    coordinator.weights.copies = StoredCopies(stores)
    coordinator.weights.copies.trouble |= trouble
    coordinator.weights.copies.begin()


async def _probed_at(stack: AsyncExitStack, door: Door, url: str, spec: NodeSpec) -> str:
    """Return where others measure the link to this head: a rented one has no port open but the coordinator's."""
    if door.tls is not None:
        return urlsplit(door.url(door.address, urlsplit(url).port or 0)).netloc
    probes = ProbeServer(link_cap(spec))
    await probes.start(door.host)
    stack.push_async_callback(probes.close)
    return f"{door.address}:{probes.port}"


def _hear(presence: Presence, interrupted: asyncio.Event, notice: Notice) -> None:
    presence.notice = notice
    if notice.cause == INTERRUPTION:
        interrupted.set()


async def _put_away(trainer: TrainerProcess, stored: StoredRun | None, notice: Notice | None) -> None:
    """Write the last checkpoint and bring it into the store, within what the machine still has."""
    is_going = notice is not None and notice.cause == INTERRUPTION
    left_s = max(0.0, notice.until_s - LEAVE_S - time.time()) if notice and is_going else None
    ends_at_s = time.monotonic() + (FLUSH_S if left_s is None else left_s)
    await trainer.end(LAST_WORDS_S if left_s is None else max(LAST_WORDS_S, left_s / 2))
    if stored is not None and not await stored.catch_up(max(0.0, ends_at_s - time.monotonic())):
        log.warning("left_with_unstored_work")


async def _until_over(coordinator: Coordinator, ending: Coroutine[None, None, None], interrupted: asyncio.Event) -> int:
    """Return when this node should end, and its exit code: 1 when the trainer died for good, else 0."""
    notice = asyncio.create_task(interrupted.wait())
    overdue = asyncio.create_task(_overdue(coordinator))
    lingering = asyncio.create_task(ending)
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
    await asyncio.sleep(LAPSE_GRACE_S + (STORE_GRACE_S if coordinator.spec.store else 0.0))


async def _linger(coordinator: Coordinator, training: "asyncio.Task[None]", stored: StoredRun | None) -> None:
    """Wait for the training's end, then until everybody has had time to see it. Raises the training's error."""
    await training
    if stored is not None:
        await stored.deliver(coordinator)
    done_at_s = time.monotonic()
    while not coordinator.stop_reason and time.monotonic() - done_at_s < LINGER_DONE_S:  # noqa: ASYNC110 - as above
        await asyncio.sleep(LOOK_S)
    await asyncio.sleep(LINGER_STOPPED_S)
