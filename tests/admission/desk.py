"""An Admission with one clock and a prompt source, for histories written by hand, and what workers make of leases."""

from collections.abc import Iterator
from itertools import count

from hexcloud.admission.admission import Admission, Ask, Granted, Receipt, Terms
from hexcloud.admission.groups import Prompt
from hexcloud.admission.staleness import StalenessLaw
from hexcloud.domain.lease import Lease
from hexcloud.domain.sample import Sample

MAX_NEW, VOCABULARY = 6, 10


def terms(steps: int = 2, size: int = 2, eta: int = 1, replace: bool = True) -> Terms:
    law = StalenessLaw(samples_per_step=steps * size, group_size=size, eta=eta)
    return Terms(
        law=law, vocabulary=VOCABULARY, max_new_tokens=MAX_NEW, lease_s=10.0, grace_s=5.0, replace_zero_variance=replace
    )


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
