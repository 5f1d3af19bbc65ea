"""Commits of one batch to a coordinator over a line that loses calls and answers."""

import asyncio
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path

import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

from hexcloud.admission.admission import Admission, Receipt
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.generation import FinishKind, Generation
from hexcloud.domain.lease import Lease, LeaseId
from hexcloud.domain.messages import LeaseRequest, PartialCommit
from hexcloud.domain.packed import packed_numbers
from hexcloud.domain.raw import MAX_BODY, parse_commit
from hexcloud.domain.response import Response
from hexcloud.domain.sample import Sample
from hexcloud.runtime.coordinator_publish import ConflictError
from hexcloud.runtime.rollout_bench import Key, key
from hexcloud.runtime.rollout_commit import Commits
from hexcloud.runtime.rollout_link import CoordinatorLink, RefusedError, UnreachableError
from hexcloud.runtime.rollout_outbox import MAX_PER_CALL, MAX_TOKENS_PER_CALL
from hexcloud.runtime.rollout_work import grown, partial
from tests.runtime.coordinator_desk import A, B, Desk, Sums


class Line(CoordinatorLink):
    """A node's calls to a coordinator of this process; each may be lost, or its answer may be."""

    def __init__(self, desk: Desk, rng: random.Random, loss: float) -> None:
        self.desk, self.rng, self.loss = desk, rng, loss
        self.bodies: list[bytes] = []
        self.has_failed = False

    async def _call(self, method: str, path: str, message: Frozen | bytes | None = None) -> httpx.Response:
        assert (method, path) == ("POST", "/partials") and isinstance(message, bytes)
        self.bodies.append(message)
        self.has_failed = True
        if self.rng.random() < self.loss:
            raise UnreachableError("the call is lost")
        try:
            self.desk.coordinator.commit(parse_commit(message))
        except ConflictError as error:
            raise RefusedError(str(error)) from error
        if self.rng.random() < self.loss:
            raise UnreachableError("the answer is lost")
        self.has_failed = False
        return httpx.Response(204)


@dataclass
class Held:
    """A lease with what its worker made of it."""

    lease: Lease
    commits: Commits


def as_sent(made: Response) -> bytes:
    return b"".join(packed_numbers(made))


class Story:
    """Two workers that make random tokens, and the book of all that was ever made of each sample."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self.rng, self.desk = rng, Desk(folder, eta=3)
        self.line = Line(self.desk, rng, rng.choice((0.0, 0.2, 0.5)))
        self.held: dict[NodeId, dict[Key, Held]] = {A: {}, B: {}}
        self.made: dict[LeaseId, list[Response]] = {}
        self.desk.publish(0)
        for worker in self.held:
            self.desk.register(worker)

    @property
    def admission(self) -> Admission:
        return self.desk.coordinator._admission

    def parked(self, lease: Lease) -> Response | None:
        """What the coordinator has of a lease that this attempt still holds."""
        if self.admission.leases.held(lease.id, lease.attempt, lease.worker) is None:
            return None
        return self.admission._groups.live[lease.group].parked.get(lease.index, Response()).opened()

    # Events. Each may come at any moment.
    async def ask(self) -> None:
        worker, admission = self.rng.choice((A, B)), self.admission
        ask = LeaseRequest(node_id=worker, epoch=admission.epoch, version=admission.version, want=4)
        granted = self.desk.coordinator.lease(ask).leases
        commits = Commits(worker, self.line, granted)
        for lease in granted:
            before = self.made.setdefault(lease.id, [Response()])
            assert any(one.continues(lease.begun) for one in before), "nobody goes on from what nobody made"
            self.held[worker][key(lease)] = Held(lease, commits)

    async def decode(self) -> None:
        for held in self._some():
            length = min(self.rng.randint(0, 2), Sums.max_new_tokens - len(held.lease.prefix))
            more = Generation(
                rid="x",
                tokens=tuple(self.rng.randrange(Sums.vocabulary_size) for _ in range(length)),
                logprobs=tuple(-self.rng.random() for _ in range(length)),
                versions=(self.admission.version,) * length,
                finish=FinishKind.LENGTH,
            )
            held.lease = grown(held.lease, more)
            self.made[held.lease.id].append(held.lease.begun)

    async def commit(self) -> None:
        for held in self._some():
            known = self.parked(held.lease)
            await held.commits.send([held.lease])
            now = self.parked(held.lease)
            if known is None or now is None:
                continue
            assert as_sent(now) in (as_sent(known), as_sent(held.lease.begun)), "either nothing is new or all is there"
            if not self.line.has_failed:
                assert as_sent(now) == as_sent(held.lease.begun), "what was acknowledged is there"

    async def give_back(self) -> None:
        worker = self.rng.choice((A, B))
        some = self._some(worker)
        parts = tuple(partial(held.lease) for held in some)
        self.desk.coordinator.commit(PartialCommit(node_id=worker, partials=parts, released=True))
        for held in some:
            del self.held[worker][key(held.lease)]

    async def submit(self) -> None:
        for held in self._some():
            if held.lease.prefix:
                admission, sample = self.admission, sample_of_all(held.lease)
                is_open = self.parked(held.lease) is not None
                receipt = admission.submit(held.lease.worker, sample)
                assert receipt in ((Receipt.ACCEPTED, Receipt.TOO_OLD) if is_open else (Receipt.LATE,))
            self.held[NodeId(held.lease.worker)].pop(key(held.lease))

    async def lose(self) -> None:
        """A worker is silent for good; its leases go to others, and it may still speak of them."""
        self.admission.leave(worker := self.rng.choice((A, B)))
        self.desk.register(worker)

    async def expire(self) -> None:
        self.admission.expire(self.desk.now_s + 1e6)

    async def train(self) -> None:
        if self.desk.batch().groups:
            self.desk.publish(self.admission.version + 1)

    async def recover(self) -> None:
        version = self.rng.randint(0, self.admission.version)
        self.admission.recover(self.admission.epoch + 1, version, self.desk.now_s - 100.0)
        self.desk.epoch = self.admission.epoch

    async def forget(self) -> None:
        """The coordinator knows less than it has acknowledged."""
        for group in self.admission._groups.live.values():
            group.parked = {index: one for index, one in group.parked.items() if self.rng.random() < 0.5}

    def _some(self, worker: NodeId | None = None) -> list[Held]:
        all_held = [held for name, mine in self.held.items() if worker in (None, name) for held in mine.values()]
        return [held for held in all_held if self.rng.random() < 0.6]

    async def live(self, events: int) -> None:
        """Live through a random history with habits of its own; then let the line be good, and all is there."""
        rare = ("give_back", "submit", "lose", "expire", "train", "recover", "forget")
        weights = (2.0, 4.0, 4.0, *(self.rng.choice((0.0, 0.2, 1.0)) for _ in rare))
        for name in self.rng.choices(("ask", "decode", "commit", *rare), weights, k=events):
            await getattr(self, name)()
        self.line.loss = 0.0
        for held in [held for mine in self.held.values() for held in mine.values()]:
            await held.commits.send([held.lease])
            await held.commits.send([held.lease])
            now = self.parked(held.lease)
            assert now is None or as_sent(now) == as_sent(held.lease.begun)


def sample_of_all(lease: Lease) -> Sample:
    return Sample(
        lease=lease.id, attempt=lease.attempt, group=lease.group, index=lease.index, epoch=lease.epoch,
        prompt_ids=lease.prompt_ids, tokens=lease.prefix, logprobs=lease.prefix_logprobs,
        versions=lease.prefix_versions, reward=float(lease.index),
    )  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 120), st.integers(0, 2**32))
def test_whatever_is_lost_each_token_is_parked_as_it_was_made_or_not_at_all(events: int, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(Story(random.Random(seed), Path(folder)).live(events))


def long_leases(desk: Desk, count: int, length: int) -> list[Lease]:
    (first, *_) = desk.ask(2).leases
    numbers = {
        "prefix": (7,) * length, "prefix_logprobs": (-0.5,) * length, "prefix_versions": (0,) * length
    }  # fmt: skip
    return [first.model_copy(update={"id": LeaseId(f"{place}.0"), **numbers}) for place in range(count)]


def test_no_commit_is_larger_than_the_coordinator_reads_however_much_there_is(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.publish(0)
    desk.register()
    line = Line(desk, random.Random(0), loss=0.0)
    leases = long_leases(desk, count=1024, length=3072)
    empty = [
        lease.model_copy(update=dict.fromkeys(("prefix", "prefix_logprobs", "prefix_versions"), ())) for lease in leases
    ]
    asyncio.run(Commits(A, line, empty).send(leases))
    commits = [parse_commit(body) for body in line.bodies]
    assert [one.lease for commit in commits for one in commit.partials] == [lease.id for lease in leases]
    for body, commit in zip(line.bodies, commits, strict=True):
        assert len(body) < MAX_BODY / 4
        assert len(commit.partials) <= MAX_PER_CALL
        assert sum(one.made.length for one in commit.partials) <= MAX_TOKENS_PER_CALL


def test_a_token_is_sent_once_while_nothing_fails_and_all_again_after_a_failure(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.publish(0)
    desk.register()
    line = Line(desk, random.Random(0), loss=0.0)
    (lease,) = desk.ask(1).leases
    commits = Commits(A, line, [lease])

    def sent(length: int, loss: float = 0.0) -> tuple[int, int]:
        line.loss = loss
        whole = Response((7,) * length, (-0.5,) * length, (0,) * length)
        now = lease.model_copy(
            update={"prefix": whole.tokens, "prefix_logprobs": whole.logprobs, "prefix_versions": whole.versions}
        )
        asyncio.run(commits.send([now]))
        (part,) = parse_commit(line.bodies[-1]).partials
        return part.start, part.made.length

    assert sent(1) == (0, 1)
    assert sent(3) == (1, 2)
    assert sent(4, loss=1.0) == (3, 1)
    assert sent(5) == (0, 5)
    assert sent(5) == (5, 0)
