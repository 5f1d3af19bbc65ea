"""The laws of admission on random histories, and each rule in a history of its own."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hexcloud.admission.admission import MAX_REPLACED_BATCHES, Admission, Ask, Granted, Receipt, Terms
from hexcloud.admission.groups import Parked, Prompt
from hexcloud.admission.staleness import StalenessLaw
from hexcloud.domain.lease import GroupId, Lease, LeaseEnd, LeaseId
from hexcloud.domain.sample import Group, Sample

MAX_NEW = 6
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
    "recover": (0, 0, 0.3),
}
"""Weights of events, one drawn per history: some have slow loaders, some lose many leases, some recover often."""


def terms(steps: int = 2, size: int = 2, eta: int = 1, replace: bool = True) -> Terms:
    law = StalenessLaw(samples_per_step=steps * size, group_size=size, eta=eta)
    return Terms(law=law, max_new_tokens=MAX_NEW, lease_s=10.0, grace_s=5.0, replace_zero_variance=replace)


def prompts() -> Iterator[Prompt]:
    return (Prompt((1, number), str(number)) for number in count())


def sample_of(lease: Lease, versions: tuple[int, ...] = (), reward: float | None = None) -> Sample:
    """Return what a worker makes of a lease; by default all tokens by the lease's version, rewards that differ."""
    tail = versions or (lease.version,)
    made = lease.prefix_versions + tail
    return Sample(
        lease=lease.id,
        attempt=lease.attempt,
        group=lease.group,
        index=lease.index,
        epoch=lease.epoch,
        prompt_ids=lease.prompt_ids,
        tokens=lease.prefix + (7,) * len(tail),
        logprobs=lease.prefix_logprobs + (-0.5,) * len(tail),
        versions=made,
        reward=float(lease.index) if reward is None else reward,
    )


@dataclass
class Worker:
    """A worker as it sees itself: it may be behind, and may still hold what the coordinator has given away."""

    name: str
    slots: int
    epoch: int = 0
    version: int = -1
    held: dict[tuple[LeaseId, int], Lease] = field(default_factory=dict)
    made: dict[tuple[LeaseId, int], Parked] = field(default_factory=dict)


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
            self.granted[key] = worker.held[key] = lease
            self.open.add(key)
            worker.made[key] = Parked(lease.prefix, lease.prefix_logprobs, lease.prefix_versions)
        assert self.admission.leases.count(worker.name) <= worker.slots
        return granted

    def decode(self) -> None:
        """A worker makes a token for some of its leases, by whatever it has loaded now."""
        if self.workers:
            worker = self.rng.choice(self.workers)
            for key in self._some(worker):
                made = worker.made[key]
                if len(made.tokens) < MAX_NEW:
                    worker.made[key] = Parked(
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
                self.admission.renew(lease, worker.made[key], self.now_s)
                if is_released:
                    self.admission.release(lease)
            if is_released:
                del worker.held[key]

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
            age = self.law.age(step, group.oldest_version)
            assert 0 <= age <= self.law.eta, "no group over eta is trained"
            assert max(max(sample.versions) for sample in group.samples) <= step
            self.ages[age] += len(group.samples)

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


class Desk:
    """An Admission with one clock and a prompt source, for histories written by hand."""

    def __init__(self, terms: Terms) -> None:
        self.admission = Admission(terms)
        self.prompts = prompts()
        self.now_s = 0.0

    def ask(self, worker: str, want: int, version: int | None = None, epoch: int | None = None) -> Granted:
        self.admission.join(worker, 100)
        version = self.admission.version if version is None else version
        ask = Ask(worker, self.admission.epoch if epoch is None else epoch, version, want)
        return self.admission.grant(ask, self.now_s, lambda: next(self.prompts))

    def leases(self, worker: str, want: int, version: int | None = None) -> tuple[Lease, ...]:
        granted = self.ask(worker, want, version)
        assert len(granted.leases) == want
        return granted.leases

    def submit(self, *leases: Lease, reward: float | None = None) -> None:
        for lease in leases:
            assert self.admission.submit(lease.worker, sample_of(lease, reward=reward)) is Receipt.ACCEPTED

    def step(self) -> None:
        """Make one batch with the newest weights, train and publish it."""
        if not self.admission.has_batch:
            self.submit(*self.ask("stepper", self.admission.terms.law.samples_per_step).leases)
        assert self.admission.take()
        self.admission.publish(self.admission.version + 1)

    def recover(self, version: int) -> None:
        """Recover, and let every worker report at once."""
        self.admission.recover(self.admission.epoch + 1, version, self.now_s)
        for worker in ("a", "stepper"):
            self.admission.hear(worker, self.admission.epoch, ())


def test_a_run_with_eta_zero_makes_one_batch_per_version_and_goes_on() -> None:
    desk = Desk(terms(steps=2, size=2, eta=0))
    for version in range(3):
        leases = desk.leases("a", 4)
        assert desk.ask("a", 1) == Granted()
        desk.submit(*leases)
        assert len(desk.admission.take()) == 2
        assert desk.ask("a", 1) == Granted(), "the batch in training still counts"
        desk.admission.publish(version + 1)
    assert desk.admission.trained_samples == 12


def test_whole_groups_count_even_if_only_some_of_their_samples_are_leased() -> None:
    desk = Desk(terms(steps=2, size=4, eta=0))
    desk.leases("a", 1)
    assert desk.admission.outstanding == 4


def test_a_worker_is_never_granted_more_than_its_free_slots() -> None:
    desk = Desk(terms(steps=4, size=4, eta=4))
    desk.admission.join("a", 3)
    ask = Ask("a", 0, 0, want=10)
    assert len(desk.admission.grant(ask, 0.0, lambda: next(desk.prompts)).leases) == 3
    assert desk.admission.grant(ask, 0.0, lambda: next(desk.prompts)) == Granted()


def test_a_worker_that_never_joined_gets_nothing() -> None:
    desk = Desk(terms())
    assert desk.admission.grant(Ask("stranger", 0, 0, 4), 0.0, lambda: next(desk.prompts)) == Granted()


def test_a_worker_behind_is_told_to_load_when_its_samples_would_come_too_late() -> None:
    desk = Desk(terms(steps=1, size=2, eta=1))
    desk.step()
    first = desk.ask("slow", 2, version=0)
    assert len(first.leases) == 2, "due at step 1: age 1 is allowed"
    assert desk.ask("slow", 2, version=0) == Granted(must_load=True), "due at step 2: age 2 is not"
    assert len(desk.ask("quick", 2, version=1).leases) == 2


@pytest.mark.parametrize(("version", "epoch"), [(-1, 0), (1, 0), (0, 1)])
def test_a_worker_with_no_weights_or_weights_unheard_of_is_told_to_load(version: int, epoch: int) -> None:
    assert Desk(terms()).ask("a", 1, version=version, epoch=epoch) == Granted(must_load=True)


def test_a_full_run_tells_nobody_to_load() -> None:
    desk = Desk(terms(steps=1, size=2, eta=0))
    desk.leases("a", 2)
    assert desk.ask("b", 2, version=-1) == Granted()


def test_a_late_result_of_an_expired_lease_changes_nothing() -> None:
    desk = Desk(terms())
    (lease,) = desk.leases("a", 1)
    assert desk.admission.expire(10.0).total() == 1
    (again,) = desk.leases("b", 1)
    assert (again.id, again.attempt) == (lease.id, lease.attempt + 1)
    assert desk.admission.submit("a", sample_of(lease)) is Receipt.LATE
    assert desk.admission.submit("b", sample_of(again)) is Receipt.ACCEPTED
    assert desk.admission.leases.ended == {LeaseEnd.LOST: 1, LeaseEnd.SAMPLE: 1}


def test_a_sample_sent_twice_counts_once() -> None:
    desk = Desk(terms())
    (lease,) = desk.leases("a", 1)
    assert desk.admission.submit("a", sample_of(lease)) is Receipt.ACCEPTED
    assert desk.admission.submit("a", sample_of(lease)) is Receipt.LATE
    assert desk.admission.leases.ended[LeaseEnd.SAMPLE] == 1


def test_a_partial_commit_renews_the_lease() -> None:
    desk = Desk(terms())
    (lease,) = desk.leases("a", 1)
    desk.admission.renew(lease, Parked((7,), (-0.1,), (0,)), now_s=8.0)
    assert not desk.admission.expire(17.0)
    assert desk.admission.expire(18.0).total() == 1


def test_a_preempted_workers_tokens_are_continued_by_another() -> None:
    desk = Desk(terms())
    lease, _ = desk.leases("a", 2)
    desk.admission.renew(lease, Parked((7, 8), (-0.1, -0.2), (0, 0)), now_s=0.0)
    desk.admission.leave("a")
    again, other = desk.leases("b", 2)
    assert (again.id, again.attempt) == (lease.id, 1)
    assert (again.prefix, again.prefix_logprobs, again.prefix_versions) == ((7, 8), (-0.1, -0.2), (0, 0))
    assert other.prefix == ()


@pytest.mark.parametrize(
    "committed",
    [
        Parked((7,), (), (0,)),
        Parked((7,), (-0.1,), (1,)),
        Parked((7,) * MAX_NEW, (-0.1,) * MAX_NEW, (0,) * MAX_NEW),
        Parked((7,), (float("-inf"),), (0,)),
    ],
    ids=["not equally long", "by weights not published", "already full", "not finite"],
)
def test_tokens_that_cannot_be_continued_start_again(committed: Parked) -> None:
    desk = Desk(terms())
    (lease,) = desk.leases("a", 1)
    desk.admission.renew(lease, committed, now_s=0.0)
    desk.admission.release(lease)
    (again,) = desk.leases("b", 1)
    assert (again.id, again.attempt, again.prefix) == (lease.id, 1, ())


def test_an_older_commit_that_arrives_late_does_not_shorten_the_parked_tokens() -> None:
    desk = Desk(terms())
    (lease,) = desk.leases("a", 1)
    desk.admission.renew(lease, Parked((7, 8), (-0.1, -0.2), (0, 0)), now_s=0.0)
    desk.admission.renew(lease, Parked((7,), (-0.1,), (0,)), now_s=0.0)
    desk.admission.release(lease)
    assert desk.leases("b", 1)[0].prefix == (7, 8)


def test_a_parked_prefix_too_old_to_be_trained_is_forgotten_and_the_sample_starts_again() -> None:
    desk = Desk(terms(steps=1, size=2, eta=1))
    lease, other = desk.leases("a", 2)
    desk.admission.renew(lease, Parked((7,), (-0.1,), (0,)), now_s=0.0)
    desk.admission.release(lease)
    desk.admission.release(other)
    late = desk.leases("late", 2)
    for _ in range(2):
        desk.step()  # others overtake: version 2, where a token of version 0 is too old
    assert desk.admission.leases.ended[LeaseEnd.DROPPED] == 2, "the leases of `late` ended with their tokens"
    assert set(desk.admission.hear("late", 0, ())) == {held.id for held in late}
    again = desk.leases("b", 2)
    assert [(held.id, held.prefix, held.version) for held in again] == [(lease.id, (), 2), (other.id, (), 2)]
    desk.submit(*again)
    assert desk.admission.take()


def test_tokens_parked_when_they_were_young_are_forgotten_once_they_are_too_old() -> None:
    desk = Desk(terms(steps=1, size=2, eta=1))
    lease, _ = desk.leases("slow", 2)
    desk.submit(*desk.leases("quick", 2))
    desk.admission.take()
    desk.admission.publish(1)
    quick = desk.leases("quick", 2)
    desk.admission.renew(lease, Parked((7,), (-0.1,), (0,)), now_s=0.0)
    desk.admission.release(lease)
    desk.submit(*quick)
    desk.admission.take()
    desk.admission.publish(2)
    again = desk.leases("quick", 2)
    assert (again[0].id, again[0].prefix) == (lease.id, ())


def test_a_group_with_a_sample_too_old_is_dropped_at_once_and_its_other_leases_are_aborted() -> None:
    desk = Desk(terms(steps=1, size=2, eta=1))
    done, open_lease = desk.leases("slow", 2)
    desk.submit(done)
    desk.step()
    assert desk.admission.dropped_samples == 0
    desk.submit(*desk.leases("quick", 2))
    assert desk.admission.take()
    assert desk.admission.dropped_samples == 2
    assert desk.admission.outstanding == 2, "only the batch in training is left"
    assert desk.admission.hear("slow", 0, ()) == (open_lease.id,)
    assert desk.admission.submit("slow", sample_of(open_lease)) is Receipt.LATE


def test_a_sample_that_comes_too_late_starts_again_in_its_group() -> None:
    desk = Desk(terms(steps=1, size=1, eta=1, replace=False))
    (lease,) = desk.leases("a", 1)
    desk.step()
    (young,) = desk.leases("b", 1)
    desk.admission.renew(lease, Parked((7,), (-0.1,), (1,)), now_s=0.0)  # known to be of version 1 so far
    desk.submit(young)
    assert desk.admission.take()
    assert desk.admission.submit("a", sample_of(lease, versions=(0,))) is Receipt.TOO_OLD
    desk.admission.publish(2)
    assert desk.leases("b", 1)[0].id == lease.id
    assert desk.admission.dropped_samples == 1


@pytest.mark.parametrize(
    "lie",
    [{"index": 1}, {"epoch": 1}, {"prompt_ids": (9, 9)}, {"versions": (1,)}, {"versions": (-1,)}],
    ids=lambda lie: next(iter(lie)),
)
def test_a_sample_that_contradicts_its_lease_is_refused_and_made_again(lie: dict[str, object]) -> None:
    desk = Desk(terms())
    (lease,) = desk.leases("a", 1)
    assert desk.admission.submit("a", sample_of(lease).model_copy(update=lie)) is Receipt.REFUSED
    assert desk.leases("b", 1)[0].id == lease.id


def test_nobody_delivers_for_another_worker() -> None:
    desk = Desk(terms())
    (lease,) = desk.leases("a", 1)
    assert desk.admission.submit("b", sample_of(lease)) is Receipt.LATE
    assert desk.admission.submit("a", sample_of(lease)) is Receipt.ACCEPTED


def test_a_group_without_variance_is_counted_and_replaced() -> None:
    desk = Desk(terms(steps=1, size=2, eta=0))
    desk.submit(*desk.leases("a", 2), reward=1.0)
    assert desk.admission.outstanding == 0
    assert desk.admission.filtered_samples == 2
    assert desk.admission.take() == ()
    desk.step()


def test_without_the_filter_a_group_without_variance_is_trained() -> None:
    desk = Desk(terms(steps=1, size=2, eta=0, replace=False))
    desk.submit(*desk.leases("a", 2), reward=1.0)
    assert len(desk.admission.take()) == 1


def test_a_policy_that_solves_every_prompt_does_not_stop_the_run() -> None:
    desk = Desk(terms(steps=2, size=2, eta=0))
    for step in range(2):
        for _ in range(MAX_REPLACED_BATCHES + 1):
            desk.submit(*desk.ask("a", 4).leases, reward=1.0)
        assert desk.admission.take(), f"step {step}"
        desk.admission.publish(step + 1)
    assert desk.admission.filtered_samples == 2 * MAX_REPLACED_BATCHES * 4


def test_an_ended_lease_that_a_worker_still_reports_is_aborted() -> None:
    desk = Desk(terms())
    mine, ended = desk.leases("a", 2)
    desk.submit(ended)
    told = desk.admission.hear("a", 0, ((mine.id, 0), (ended.id, 0), (LeaseId("77.0"), 0)))
    assert set(told) == {ended.id, LeaseId("77.0")}


def test_an_abort_is_taken_back_when_the_same_worker_gets_the_sample_again() -> None:
    desk = Desk(terms())
    desk.leases("a", 1)
    desk.admission.expire(10.0)
    desk.leases("a", 1)
    assert desk.admission.hear("a", 0, ()) == ()


def test_a_version_follows_only_from_the_batch_taken_for_it() -> None:
    desk = Desk(terms())
    with pytest.raises(ValueError, match="no batch was taken"):
        desk.admission.publish(1)
    desk.submit(*desk.leases("a", 4))
    desk.admission.take()
    with pytest.raises(ValueError, match="can't follow"):
        desk.admission.publish(2)


def test_recovery_drops_what_abandoned_versions_made_and_keeps_the_rest() -> None:
    desk = Desk(terms(steps=1, size=2, eta=3))
    old = desk.leases("a", 2)
    desk.submit(old[0])
    desk.step()
    new = desk.leases("a", 2)
    desk.submit(new[0])
    desk.recover(version=0)
    assert desk.admission.dropped_samples == 2
    assert desk.admission.outstanding == 2
    assert desk.admission.submit("a", sample_of(old[1])) is Receipt.LATE
    (again,) = desk.leases("a", 1)
    assert (again.id, again.attempt, again.epoch) == (old[1].id, 1, 1)
    desk.submit(again)
    assert [group.id for group in desk.admission.take()] == [old[0].group]


def test_capacity_does_not_inflate_after_a_recovery() -> None:
    desk = Desk(terms(steps=1, size=2, eta=1))
    for _ in range(3):
        desk.step()
    desk.recover(version=0)
    assert len(desk.ask("a", 100).leases) == 4


def test_groups_kept_by_a_recovery_are_due_by_the_restored_version() -> None:
    desk = Desk(terms(steps=1, size=2, eta=1))
    desk.step()
    kept = desk.leases("a", 2, version=0)
    desk.recover(version=0)
    again = desk.leases("a", 2, version=0)
    assert [held.id for held in again] == [held.id for held in kept]


def test_the_batch_in_training_when_the_trainer_died_is_dropped() -> None:
    desk = Desk(terms(steps=1, size=2, eta=1))
    desk.step()
    desk.submit(*desk.leases("a", 2))
    desk.admission.take()
    desk.recover(version=0)
    assert not desk.admission.is_training
    assert desk.admission.outstanding == 0
    assert desk.admission.dropped_samples == 2


def test_a_coordinator_that_starts_again_gives_no_lease_id_a_second_time() -> None:
    desk = Desk(terms())
    before = desk.leases("a", 4)
    desk.admission = Admission(terms(), epoch=1)
    assert not {lease.id for lease in before} & {lease.id for lease in desk.leases("a", 4)}


def test_after_a_recovery_nothing_is_granted_before_all_workers_have_reported() -> None:
    desk = Desk(terms())
    desk.admission.join("b", 4)
    (lease,) = desk.leases("a", 1)
    desk.admission.recover(epoch=1, version=0, now_s=0.0)
    assert desk.ask("a", 1) == Granted()
    assert desk.admission.hear("b", 0, ()) == (), "an answer of the old epoch is no report"
    assert desk.ask("a", 1) == Granted()
    assert desk.admission.hear("a", 1, ((lease.id, 0),)) == (lease.id,)
    desk.admission.hear("b", 1, ())
    assert len(desk.ask("a", 1).leases) == 1


def test_after_the_grace_period_silent_workers_no_longer_hold_up_grants() -> None:
    desk = Desk(terms())
    desk.admission.join("silent", 4)
    desk.admission.recover(epoch=1, version=0, now_s=0.0)
    assert desk.ask("a", 1) == Granted()
    desk.now_s = 5.0
    assert len(desk.ask("a", 1).leases) == 1


@pytest.mark.parametrize(("epoch", "version"), [(0, 0), (1, 1)])
def test_a_recovery_needs_a_higher_epoch_and_a_version_that_was_published(epoch: int, version: int) -> None:
    with pytest.raises(ValueError, match="no recovery"):
        Desk(terms()).admission.recover(epoch, version, now_s=0.0)


def test_recovery_forgets_parked_tokens_of_abandoned_versions() -> None:
    desk = Desk(terms(steps=1, size=2, eta=3))
    lease, _ = desk.leases("a", 2)
    desk.step()
    desk.admission.renew(lease, Parked((7, 8), (-0.1, -0.1), (0, 1)), now_s=0.0)
    desk.recover(version=0)
    assert desk.leases("a", 1)[0].prefix == ()
