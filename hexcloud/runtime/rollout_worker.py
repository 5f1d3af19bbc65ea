"""LeaseWorker: keeps a node's slots full of leases and turns each into a sample or gives it back.

Invariant: every lease it takes leaves it once: as a sample, as a partial that is given back, or because the coordinator
said that it ended elsewhere.
"""

import asyncio
from itertools import zip_longest

import structlog

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.errors import EngineError
from hexcloud.domain.generation import FinishKind, Generation
from hexcloud.domain.lease import Lease, LeaseId
from hexcloud.domain.messages import Heartbeat, LeaseGrant, LeaseRenewal, LeaseRequest, Notice, Partial
from hexcloud.domain.sample import Sample
from hexcloud.runtime.open_task import open_task
from hexcloud.runtime.rewards import Scorer
from hexcloud.runtime.rollout_bench import Bench, Key, key
from hexcloud.runtime.rollout_commit import Commits
from hexcloud.runtime.rollout_engine import EngineKeeper
from hexcloud.runtime.rollout_follow import WeightFollower, identity
from hexcloud.runtime.rollout_link import CALL_FAILED, CoordinatorLink
from hexcloud.runtime.rollout_outbox import MAX_PER_CALL, Outbox
from hexcloud.runtime.rollout_work import chunks, grown, is_usable, is_whole, partial, request, request_id, sample

RETRY_S = 0.5
RENEW_S = 15.0
"""Leases that run longer than this are renewed; a quarter of the coordinator's default lease."""

log = structlog.get_logger()


class LeaseWorker:
    """Asks for work whenever a batch of slots is free, the engine serves and nobody has told the node to leave."""

    def __init__(self, spec: NodeSpec, link: CoordinatorLink, keeper: EngineKeeper, follower: WeightFollower) -> None:
        self._spec = spec
        self._link = link
        self._keeper = keeper
        self._follower = follower
        self._task = open_task(spec.task, spec.weights)
        self._scorer = Scorer(self._task, spec.task)
        # Whole groups keep the calls few: one for leases, one to the engine and about one to deliver, per group.
        self._batch = min(spec.group_size, spec.slots)
        self._bench = Bench(spec.slots)
        self._outbox = Outbox(spec.node_id, link)
        self._asking = asyncio.Lock()
        self._changed = asyncio.Event()
        self._failed = asyncio.Event()
        self._batches: set[asyncio.Task[None]] = set()
        self._is_open = False
        self._is_giving_back = False
        self.is_leaving = False
        self.notice: Notice | None = None
        """The cloud's word about this machine."""

    def close(self) -> None:
        """End the verifiers."""
        self._scorer.close()

    def wake(self, is_registered: bool) -> None:
        """Look again whether to ask for work."""
        self._is_open = is_registered
        self._changed.set()

    def heartbeat(self) -> Heartbeat:
        """Say what the node is doing."""
        epoch, version = identity(self._keeper.loaded)
        return Heartbeat(
            node_id=self._spec.node_id,
            epoch=max(0, epoch),
            version=version,
            running=self._bench.running,
            generated_tokens=self._bench.generated_tokens,
            leases=(*(key(lease) for lease in self._bench.leases()), *self._outbox.keys()),
            is_paused=self._keeper.is_paused,
            notice=self.notice,
        )

    async def work(self) -> None:
        """Take leases and generate, for ever. Raises EngineDeadError."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._outbox.deliver())
            tasks.create_task(self._renew())
            tasks.create_task(self._heal())
            while True:
                await self._until_ready()
                async with self._asking:
                    grant = await self._ask()
                    for leases in chunks(grant.leases, self._batch):
                        self._begin(tasks, leases)
                if not grant.leases:
                    await asyncio.sleep(grant.retry_s)

    async def abort(self, ids: tuple[LeaseId, ...]) -> None:
        """Stop generating leases that ended elsewhere."""
        hit = self._bench.mark_ended_elsewhere(ids)
        await self._keeper.abort(tuple(request_id(lease) for lease in hit))

    async def finish(self, within_s: float) -> None:
        """Take nothing new; deliver what ends in time and give the rest back."""
        self.is_leaving = True
        async with self._asking:
            batches = set(self._batches)
        if batches:
            _, late = await asyncio.wait(batches, timeout=within_s)
            if late:
                self._is_giving_back = True
                await self._keeper.abort_all()
                await asyncio.wait(late)
        await self._outbox.emptied()

    async def _until_ready(self) -> None:
        while not self._is_ready():
            self._changed.clear()
            await self._changed.wait()

    def _is_ready(self) -> bool:
        is_wanted = self._is_open and not self.is_leaving
        return is_wanted and self._keeper.is_serving and self._bench.free >= self._batch

    async def _ask(self) -> LeaseGrant:
        epoch, version = identity(self._keeper.loaded)
        ask = LeaseRequest(node_id=self._spec.node_id, epoch=epoch, version=version, want=self._bench.free)
        try:
            grant = await self._link.leases(ask)
        except CALL_FAILED as error:
            log.warning("no_leases", reason=str(error))
            return LeaseGrant(retry_s=RETRY_S)
        self._follower.want(grant.load)
        return grant

    def _begin(self, tasks: asyncio.TaskGroup, leases: tuple[Lease, ...]) -> None:
        if self.is_leaving:
            self._outbox.add([], [partial(lease) for lease in leases])
            return
        self._bench.begin(leases)
        batch = tasks.create_task(self._generate(leases))
        self._batches.add(batch)
        batch.add_done_callback(self._batches.discard)

    async def _generate(self, leases: tuple[Lease, ...]) -> None:
        """Generate a batch, part by part; what is finished leaves at once."""
        commits = Commits(self._spec.node_id, self._link, leases)
        while leases:
            generations: tuple[Generation | None, ...] = ()
            try:
                generations = await self._keeper.generate(tuple(request(lease, self._task.eos_ids) for lease in leases))
            except EngineError as error:
                log.warning("generation_failed", samples=len(leases), reason=str(error))
                self._failed.set()
            going = self._hand_over(leases, generations, await self._score(leases, generations))
            ended = tuple(lease for lease in leases if key(lease) not in {key(one) for one in going})
            self._bench.end(ended, sum(len(made.tokens) for made in generations if made is not None))
            self._bench.begin(going)
            self._changed.set()
            leases = going
            await commits.send(leases)

    async def _heal(self) -> None:
        """Mend the engine after failed batches. Raises EngineDeadError."""
        while True:
            await self._failed.wait()
            # An engine that answers and still refuses must not spin through leases.
            await asyncio.sleep(RETRY_S)
            self._failed.clear()
            await self._keeper.heal()
            self._changed.set()

    async def _score(self, leases: tuple[Lease, ...], generations: tuple[Generation | None, ...]) -> dict[Key, float]:
        """Return the reward of each sample that is whole.

        On a thread: a verifier may take its time, and heartbeats may not.
        """
        made = [(lease, one) for lease, one in zip(leases, generations, strict=False) if one is not None]
        whole = [(lease, one) for lease, one in made if is_whole(lease, one)]
        pairs = [(lease.prefix + one.tokens, lease.answer) for lease, one in whole]
        rewards = await asyncio.to_thread(self._scorer.score, pairs)
        return {key(lease): reward for (lease, _), reward in zip(whole, rewards, strict=True)}

    def _hand_over(
        self, leases: tuple[Lease, ...], generations: tuple[Generation | None, ...], rewards: dict[Key, float]
    ) -> tuple[Lease, ...]:
        """Put every lease's result into the outbox, but those that ended elsewhere; return what is to be continued."""
        samples: list[Sample] = []
        partials: list[Partial] = []
        going: list[Lease] = []
        for lease, generation in zip_longest(leases, generations):
            if self._bench.take_ended_elsewhere(lease):
                continue
            if generation is not None and not is_usable(generation):
                log.warning("generation_not_finite", lease=lease.id, tokens=len(generation.tokens))
                generation = None  # its lease is lost; the others of the batch are delivered
            if generation is None or generation.finish is FinishKind.ABORT:
                partials.append(partial(lease, generation))
            elif key(lease) in rewards:
                samples.append(sample(lease, generation, rewards[key(lease)]))
            elif self._is_giving_back:
                partials.append(partial(lease, generation))
            else:
                going.append(grown(lease, generation))
        self._outbox.add(samples, partials)
        return tuple(going)

    async def _renew(self) -> None:
        """Renew, every RENEW_S, the leases that were running at the round before already."""
        before: set[Key] = set()
        while True:
            await asyncio.sleep(RENEW_S)
            running = tuple(map(key, self._bench.leases()))
            for some in chunks(tuple(one for one in running if one in before), MAX_PER_CALL):
                await self._renew_some(some)
            before = set(running)

    async def _renew_some(self, leases: tuple[Key, ...]) -> None:
        try:
            await self._link.renew(LeaseRenewal(node_id=self._spec.node_id, leases=leases))
        except CALL_FAILED as error:
            log.warning("not_renewed", samples=len(leases), reason=str(error))
