"""The laws of admission on random histories of every kind of event."""

import math
import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import count

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hexcloud.admission.admission import MAX_REPLACED_BATCHES, Admission, Ask, Granted, Receipt, Terms
from hexcloud.domain.lease import GroupId, Lease, LeaseId
from hexcloud.domain.response import Response
from hexcloud.domain.sample import Group, Sample
from tests.admission.desk import MAX_NEW, VOCABULARY, prompts, sample_of, terms

HABITS: dict[str, tuple[float, ...]] = {
    "join": (0.5, 1),
    "leave": (0.1, 0.5),
    "load": (0.5, 2, 8),
    "ask": (8,),
    "decode": (1, 6),
    "commit": (0.5, 4),
    "release": (0.1, 1),
    "submit": (4, 8),
    "repeat": (0.5,),
    "beat": (0.2, 2),
    "wait": (0.1, 1),
    "take": (4,),
    "publish": (2, 4),
    "lie": (0, 0.5, 4),
    "recover": (0, 0, 0.3),
}
"""Weights of events, one drawn per history: some have slow loaders, some lose many leases, some recover often."""


TOO_LONG = MAX_NEW + 1
LIES: tuple[dict[str, object], ...] = (
    {"tokens": (VOCABULARY,), "logprobs": (-0.1,), "versions": (0,)},
    {"tokens": (9,), "logprobs": (math.inf,), "versions": (0,)},
    {"tokens": (9,) * TOO_LONG, "logprobs": (-0.1,) * TOO_LONG, "versions": (0,) * TOO_LONG},
    {"reward": 1e300},
)


@dataclass
class Worker:
    """A worker as it sees itself: it may be behind, and may still hold what the coordinator has given away."""

    name: str
    slots: int
    epoch: int = 0
    version: int = -1
    held: dict[tuple[LeaseId, int], Lease] = field(default_factory=dict)
    made: dict[tuple[LeaseId, int], Response] = field(default_factory=dict)


class World:
    """Workers and a trainer around an Admission, and the books that check its laws after every event."""

    def __init__(self, terms: Terms, rng: random.Random) -> None:
        self.terms, self.law, self.rng = terms, terms.law, rng
        self.admission = Admission(terms)
        self.prompts = prompts()
        self.workers: list[Worker] = []
        self.now_s = 0.0
        self.names = count()
        self.granted: dict[tuple[LeaseId, int], Lease] = {}
        self.open: set[tuple[LeaseId, int]] = set()
        self.ended: set[tuple[LeaseId, int]] = set()
        self.trained: set[GroupId] = set()
        self.ages: Counter[int] = Counter()
        self.sent: list[tuple[str, Sample]] = []

    # Events. Each may be called at any moment.
    def join(self) -> None:
        worker = Worker(f"w{next(self.names)}", self.rng.randint(1, 6), epoch=self.admission.epoch)
        self.workers.append(worker)
        self.admission.join(worker.name, worker.slots)

    def leave(self) -> None:
        if self.workers:
            worker = self.workers.pop(self.rng.randrange(len(self.workers)))
            self.admission.leave(worker.name)

    def load(self) -> None:
        """A worker loads the newest weights; slow ones do so rarely."""
        if self.workers:
            worker = self.rng.choice(self.workers)
            worker.epoch, worker.version = self.admission.epoch, self.admission.version

    def ask(self) -> None:
        if self.workers:
            self._ask(self.rng.choice(self.workers))

    def _ask(self, worker: Worker) -> Granted:
        ask = Ask(worker.name, worker.epoch, worker.version, self.rng.randint(1, 8))
        granted = self.admission.grant(ask, self.now_s, lambda: next(self.prompts))
        for lease in granted.leases:
            key = (lease.id, lease.attempt)
            assert key not in self.granted, "an attempt is granted once"
            assert lease.version == worker.version
            assert not lease.prefix or max(lease.prefix) < VOCABULARY, "nobody goes on from what no model can have made"
            assert len(lease.prefix) < MAX_NEW and all(map(math.isfinite, lease.prefix_logprobs))
            self.granted[key] = worker.held[key] = lease
            self.open.add(key)
            worker.made[key] = Response(lease.prefix, lease.prefix_logprobs, lease.prefix_versions)
        assert self.admission.leases.count(worker.name) <= worker.slots
        return granted

    def decode(self) -> None:
        """A worker makes a token for some of its leases, by whatever it has loaded now."""
        if self.workers:
            worker = self.rng.choice(self.workers)
            for key in self._some(worker):
                made = worker.made[key]
                if len(made.tokens) < MAX_NEW:
                    worker.made[key] = Response(
                        (*made.tokens, 9), (*made.logprobs, -0.1), (*made.versions, max(0, worker.version))
                    )

    def commit(self) -> None:
        self._commit(is_released=False)

    def release(self) -> None:
        self._commit(is_released=True)

    def _commit(self, is_released: bool) -> None:
        if not self.workers:
            return
        worker = self.rng.choice(self.workers)
        for key in self._some(worker):
            lease = self.admission.leases.held(*key, worker.name)
            if lease is not None:
                self._commit_from(lease, worker.made[key], 0 if is_released else self.rng.randint(0, MAX_NEW))
                if is_released:
                    self.admission.release(lease)
            if is_released:
                del worker.held[key]

    def _commit_from(self, lease: Lease, made: Response, start: int) -> None:
        """A worker commits what it has made from some token on, which is of use only if those before are there."""
        parked = self.admission._groups.live[lease.group].parked.get(lease.index, Response())
        more = Response(made.tokens[start:], made.logprobs[start:], made.versions[start:])
        receipt = self.admission.commit(lease, more, self.now_s, start)
        assert receipt is (Receipt.ACCEPTED if start <= parked.length else Receipt.GAP)
        now = self.admission._groups.live[lease.group].parked.get(lease.index, Response())
        assert now == (made if receipt is Receipt.ACCEPTED and made.length > parked.length else parked)

    def submit(self) -> None:
        if self.workers:
            worker = self.rng.choice(self.workers)
            for key in self._some(worker):
                self._submit(worker, key)

    def _submit(self, worker: Worker, key: tuple[LeaseId, int]) -> None:
        lease, made = worker.held.pop(key), worker.made.pop(key)
        versions = made.versions or (max(0, worker.version),)
        sample = sample_of(lease).model_copy(
            update={
                "tokens": made.tokens or (9,),
                "logprobs": made.logprobs or (-0.1,),
                "versions": versions,
                "reward": float(self.rng.randint(0, 1)),
            }
        )
        receipt = self.admission.submit(worker.name, sample)
        assert (receipt is Receipt.LATE) == (key in self.ended)
        self.sent.append((worker.name, sample))

    def lie(self) -> None:
        """A broken worker, or one with a grudge, delivers or commits what no model can have made."""
        if not self.workers:
            return
        worker = self.rng.choice(self.workers)
        for key in self._some(worker)[:1]:
            lease, is_open, lie = worker.held[key], key not in self.ended, self._lie(worker.held[key])
            spoilt = sample_of(lease).model_copy(update=lie)
            if self.rng.random() < 0.5 or "reward" in lie:
                del worker.held[key], worker.made[key]
                receipt = self.admission.submit(worker.name, spoilt)
                assert receipt is (Receipt.REFUSED if is_open else Receipt.LATE)
            elif is_open:
                told = Response(spoilt.tokens, spoilt.logprobs, spoilt.versions)
                assert self.admission.commit(lease, told, self.now_s) is Receipt.REFUSED

    def _lie(self, lease: Lease) -> dict[str, object]:
        lies = list(LIES)
        if lease.prefix:
            lies.append({"tokens": (lease.prefix[0] - 1, *lease.prefix[1:], 7)})
        return self.rng.choice(lies)

    def repeat(self) -> None:
        """An answer got lost on the network, so a worker sends again what was already taken."""
        if self.sent:
            name, sample = self.rng.choice(self.sent)
            assert self.admission.submit(name, sample) is Receipt.LATE

    def beat(self) -> None:
        if self.workers:
            worker = self.rng.choice(self.workers)
            aborted = self.admission.hear(worker.name, worker.epoch, tuple(worker.held))
            for key in tuple(worker.held):
                if key[0] in aborted:
                    assert self.admission.leases.held(*key, worker.name) is None
                    del worker.held[key]

    def wait(self) -> None:
        self.now_s += self.rng.choice((0.5, 3.0, 11.0))
        self.admission.expire(self.now_s)

    def take(self) -> None:
        first = self.admission.take()
        assert self.admission.take() == first, "a batch asked for twice is the same"

    def publish(self) -> None:
        if self.admission.is_training:
            batch = self.admission.publish(self.admission.version + 1)
            self._check_batch(batch)

    def recover(self) -> None:
        back = self.rng.randint(0, min(3, self.admission.version))
        self.admission.recover(self.admission.epoch + 1, self.admission.version - back, self.now_s)

    # Laws.
    def _check_batch(self, batch: tuple[Group, ...]) -> None:
        step = self.admission.version - 1
        assert sum(len(group.samples) for group in batch) == self.law.samples_per_step
        for group in batch:
            assert group.id not in self.trained, "no group is trained twice"
            self.trained.add(group.id)
            assert all(map(self._is_believed, group.samples)), "nothing that no model can have made is trained"
            for sample in group.samples:
                assert sample.continues(self.granted[(sample.lease, sample.attempt)].begun), "what was begun is kept"
            age = self.law.age(step, group.oldest_version)
            assert 0 <= age <= self.law.eta, "no group over eta is trained"
            assert max(max(sample.versions) for sample in group.samples) <= step
            self.ages[age] += len(group.samples)

    def _is_believed(self, sample: Sample) -> bool:
        return (
            max(sample.tokens) < VOCABULARY
            and sample.length <= MAX_NEW
            and all(-100 < logprob <= 0 for logprob in sample.logprobs)
            and abs(sample.reward) <= 1
        )

    def check(self) -> None:
        assert self.admission.outstanding <= (self.law.eta + 1) * self.law.samples_per_step
        book = self.admission.leases
        assert book.granted == len(book) + sum(book.ended.values()), "every lease ends once"
        now_open = {(lease.id, lease.attempt) for lease in book.all()}
        assert not now_open & self.ended, "an ended lease stays ended"
        self.ended |= self.open - now_open
        self.open = now_open

    def run(self, events: int) -> None:
        """Live through a random history; each history has its own habits (slow loaders, many losses, ...)."""
        habits = [self.rng.choice(HABITS[name]) for name in HABITS]
        for name in self.rng.choices(tuple(HABITS), habits, k=events):
            getattr(self, name)()
            self.check()

    def reaches_the_next_step(self) -> bool:
        """Whether one honest worker alone, whatever happened before, brings the run on in bounded rounds."""
        for worker in self.workers:
            self.admission.leave(worker.name)
        self.workers = []
        self.join()
        wanted = self.admission.version + 1
        # One slot makes a sample a round; zero-variance groups are replaced for a bounded number of batches.
        rounds = (MAX_REPLACED_BATCHES + self.law.eta + 3) * self.law.samples_per_step
        for _ in range(rounds):
            self.now_s += 6.0  # past any grace period
            self.load()
            self.ask()
            for key in tuple(self.workers[0].held):
                self._submit(self.workers[0], key)
            self.take()
            self.publish()
            self.check()
            if self.admission.version >= wanted:
                return True
        return False

    def _some(self, worker: Worker) -> list[tuple[LeaseId, int]]:
        return [key for key in tuple(worker.held) if self.rng.random() < 0.7]


all_terms = st.builds(terms, st.integers(1, 3), st.integers(1, 3), st.integers(0, 4), st.booleans())


@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(all_terms, st.integers(0, 300), st.integers(0, 2**32))
def test_the_laws_hold_in_any_history_and_the_run_never_stops_for_ever(terms: Terms, events: int, seed: int) -> None:
    world = World(terms, random.Random(seed))
    world.run(events)
    for _ in range(2):
        assert world.reaches_the_next_step()
