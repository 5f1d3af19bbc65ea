"""The rollout agent: one node's life, from registration to its end.

Invariant: it ends by itself when its spend lease lapses, whoever else is dead.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

import structlog

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.messages import INTERRUPTION, Notice, Orders, Register, RelayDoor, Startup
from hexcloud.runtime.probe import LinkCap
from hexcloud.runtime.rollout_engine import EngineDeadError, EngineKeeper
from hexcloud.runtime.rollout_follow import WeightFollower
from hexcloud.runtime.rollout_link import CALL_FAILED, CoordinatorLink, RefusedError, RevokedError, UnreachableError
from hexcloud.runtime.rollout_probe import probe_and_report
from hexcloud.runtime.rollout_store import RegionStore
from hexcloud.runtime.rollout_way import WeightWay
from hexcloud.runtime.rollout_weights import WeightFolder
from hexcloud.runtime.rollout_wire import Wire
from hexcloud.runtime.rollout_worker import LeaseWorker
from hexcloud.runtime.weight_relay import WeightRelay

LAST_WORDS_S = 1.5
"""To give leases back; with the engine's end it makes the 2 s that an interruption notice may leave."""
LEAVE_S = 5.0
"""A machine's announced end may come so much earlier: until then everything is given back."""
DRAIN_S = 30.0
"""A draining node gives back what has not ended after this."""

log = structlog.get_logger()


class Ending(StrEnum):
    """Why an agent ended."""

    STOPPED = "stopped"
    """The run is over."""
    DRAINED = "drained"
    INTERRUPTED = "interrupted"
    """The machine is about to be taken away."""
    LAPSED = "lapsed"
    """The spend lease ran out: nobody watches this node any more."""
    REVOKED = "revoked"
    """The coordinator has given this node up."""
    ENGINE_DEAD = "engine_dead"

    @property
    def exit_code(self) -> int:
        """What the process tells its machine: 0 when the end was asked for."""
        return 1 if self in (Ending.REVOKED, Ending.ENGINE_DEAD) else 0


@dataclass(frozen=True)
class Equipment:
    """What an agent works with."""

    link: CoordinatorLink
    keeper: EngineKeeper
    folder: WeightFolder
    cap: LinkCap
    address: str
    """`host:port` where this node answers probes."""
    startup: Callable[[], Startup] = Startup
    """How long the machine took until now, by parts."""
    relay: WeightRelay | None = None
    """Passes weights on to neighbours, at `door`."""
    door: RelayDoor | None = None
    store: RegionStore | None = None
    """Of this node's region, if the coordinator fills one."""


class RolloutAgent:
    """Made and run inside one event loop."""

    def __init__(self, spec: NodeSpec, equipment: Equipment) -> None:
        self._spec = spec
        self._link = equipment.link
        self._keeper = equipment.keeper
        self._cap = equipment.cap
        self._address = equipment.address
        self._door = equipment.door
        self._startup = equipment.startup
        self._wire = Wire()
        way = WeightWay(equipment.link, equipment.folder, equipment.relay, equipment.store)
        self._follower = WeightFollower(way, equipment.folder, equipment.keeper, self._wire)
        self._worker = LeaseWorker(spec, equipment.link, equipment.keeper, self._follower)
        self._run_until_s = time.time() + spec.spend_lease_s
        self._registered = False
        self._nudged = asyncio.Event()
        self._errands: dict[str, asyncio.Task[None]] = {}
        self._ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()

    async def run(self) -> Ending:
        """Work until something ends it. Unexpected errors of its loops pass through."""
        loops = [
            asyncio.create_task(loop)
            for loop in (
                self._stay_in_touch(),
                self._watch_spend_lease(),
                self._worker.work(),
                self._follower.follow(self._say_loaded),
            )
        ]
        for loop in loops:
            loop.add_done_callback(self._hear_the_end_of)
        try:
            ending = await self._ending
            log.info("agent_ending", why=ending)
            if ending in (Ending.INTERRUPTED, Ending.LAPSED):
                await self._say_last_words()
            return ending
        finally:
            rest = (*loops, *self._errands.values())
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
            self._keeper.close()
            self._worker.close()

    def interrupt(self) -> None:
        """Hear the notice that the machine is about to be taken away."""
        self._end(Ending.INTERRUPTED)

    def give_up(self, reason: str) -> None:
        """Hear that the engine will never serve again."""
        log.error("engine_dead", reason=reason)
        self._end(Ending.ENGINE_DEAD)

    def hear(self, notice: Notice) -> None:
        """Pass the cloud's word on at once. Before the machine goes, finish what can be and give back the rest."""
        self._worker.notice = notice
        self._nudged.set()
        if notice.cause == INTERRUPTION and not self._worker.is_leaving:
            left_s = max(0.0, notice.until_s - LEAVE_S - time.time())
            self._start("leave", self._leave(left_s, Ending.INTERRUPTED))

    def _end(self, ending: Ending) -> None:
        if not self._ending.done():
            self._ending.set_result(ending)

    def _hear_the_end_of(self, loop: "asyncio.Task[None]") -> None:
        """A loop ends by an error only."""
        error = None if loop.cancelled() else loop.exception()
        if error is None or self._ending.done():
            return
        if (death := _engine_death(error)) is not None:
            self.give_up(str(death))
        else:
            self._ending.set_exception(error)

    async def _say_last_words(self) -> None:
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                await self._worker.finish(within_s=0.0)
        except TimeoutError:
            log.warning("left_without_last_words")

    async def _stay_in_touch(self) -> None:
        """Call in every heartbeat, or sooner when there is news."""
        while True:
            try:
                self._obey(await self._call_in())
            except (UnreachableError, RefusedError) as error:
                log.warning("not_in_touch", reason=str(error))
                self._registered = False
            except RevokedError as error:
                # A coordinator that has just come up may not have admitted us yet; the spend lease bounds the wait.
                log.warning("not_admitted", reason=str(error))
                if self._registered:
                    self._end(Ending.REVOKED)
            self._worker.wake(self._registered)
            await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._spec.heartbeat_s):
                await self._nudged.wait()
        except TimeoutError:
            return
        finally:
            self._nudged.clear()

    async def _call_in(self) -> Orders:
        if self._registered:
            return await self._link.heartbeat(self._worker.heartbeat())
        spec = self._spec
        orders = await self._link.register(
            Register(
                node_id=spec.node_id,
                role=spec.role,
                slots=spec.slots,
                address=self._address,
                startup=self._startup(),
                region=spec.region,
                relay=self._door,
            )
        )
        log.info("registered", epoch=orders.epoch)
        self._registered = True
        # The first heartbeat follows at once: after a recovery the coordinator waits for the leases that we hold.
        self._nudged.set()
        return orders

    def _obey(self, orders: Orders) -> None:
        self._run_until_s = orders.run_until_s
        if orders.stop:
            self._end(Ending.STOPPED)
        self._follower.want(orders.latest)
        if orders.abort:
            self._start(f"abort {orders.abort}", self._worker.abort(orders.abort))
        if orders.drain and not self._worker.is_leaving:
            self._start("drain", self._leave(DRAIN_S, Ending.DRAINED))
        for address in orders.probe:
            self._start(f"probe {address}", self._probe(address))

    def _say_loaded(self) -> None:
        """Report a new version at once: leases depend on it."""
        self._nudged.set()
        self._worker.wake(self._registered)

    async def _watch_spend_lease(self) -> None:
        while True:
            left_s = self._run_until_s - time.time()
            if left_s <= 0:
                self._end(Ending.LAPSED)
                return
            await asyncio.sleep(min(left_s, self._spec.heartbeat_s))

    def _start(self, name: str, errand: Coroutine[None, None, None]) -> None:
        """Run something beside the loops, once at a time by its name."""
        if name in self._errands:
            errand.close()
            return
        task = asyncio.create_task(errand)
        self._errands[name] = task
        task.add_done_callback(lambda _: self._errands.pop(name))
        task.add_done_callback(self._hear_the_end_of)

    async def _leave(self, within_s: float, ending: Ending) -> None:
        await self._worker.finish(within_s)
        # The coordinator sees an empty node before it sees none.
        with suppress(*CALL_FAILED):
            await self._link.heartbeat(self._worker.heartbeat())
        self._end(ending)

    async def _probe(self, address: str) -> None:
        await self._wire.probe(lambda: probe_and_report(self._link, self._spec.node_id, address, self._cap))


def _engine_death(error: BaseException) -> EngineDeadError | None:
    """Return the engine's end, if that is what an error is or holds."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_engine_death, error.exceptions)), None)
    return error if isinstance(error, EngineDeadError) else None
