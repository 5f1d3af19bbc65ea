"""GroupBook: groups under way, from the first lease to the step that trains them.

A group is in exactly one place: open (samples missing), ready (complete) or training. It leaves by being trained,
dropped (too old) or filtered (no variance), and then stops counting at once.
"""

import heapq
from dataclasses import dataclass, field
from typing import NamedTuple

from hexcloud.domain.lease import GroupId, Lease, LeaseId
from hexcloud.domain.packed import Beginning
from hexcloud.domain.response import Response
from hexcloud.domain.sample import Group, Sample

EPOCH_STRIDE = 1_000_000_000
"""A book begun in epoch e counts group ids from e * EPOCH_STRIDE: no lease id is given twice in a run."""


class Prompt(NamedTuple):
    """What a group's samples answer, and what the verifier needs to score them."""

    ids: tuple[int, ...]
    answer: str


NOTHING = Response()

MAX_FAILURES = 2
"""Attempts in a row that get nowhere from the same parked tokens before these are forgotten: the tokens may be what an
engine can't go on from."""


def lease_id(group: GroupId, index: int) -> LeaseId:
    """Return the one spelling of a sample's identity."""
    return LeaseId(f"{group}.{index}")


@dataclass(slots=True)
class OpenGroup:
    """One group with what is known of its samples. `attempts` holds the next attempt number of each sample."""

    id: GroupId
    prompt: Prompt
    due_step: int
    attempts: list[int]
    parked: dict[int, Beginning] = field(default_factory=dict)
    """What there is of unfinished samples, from the response's start."""
    failures: dict[int, int] = field(default_factory=dict)
    """Attempts that added nothing to what is parked, in a row."""
    samples: dict[int, Sample] = field(default_factory=dict)
    oldest_version: int | None = None
    """Of the finished samples."""
    finished_tokens: int = 0

    def expected_tokens(self, index: int) -> float:
        """Return how long an unfinished sample is likely to be: as its finished sisters, or longer than it is already.

        Responses to one prompt resemble each other in length; before the first is there, nothing is known.
        """
        parked = self.parked.get(index, NOTHING).length
        return max(parked, self.finished_tokens / len(self.samples) if self.samples else 0.0)

    def add(self, sample: Sample) -> None:
        """Keep a finished sample."""
        oldest = sample.oldest_version
        self.oldest_version = oldest if self.oldest_version is None else min(oldest, self.oldest_version)
        self.samples[sample.index] = sample
        self.finished_tokens += sample.length
        self.unpark(sample.index)

    def park(self, index: int, made: Beginning) -> None:
        """Keep what there is of an unfinished sample, if it is more than before."""
        if made.length > self.parked.get(index, NOTHING).length:
            self.parked[index] = made
            self.failures.pop(index, None)

    def unpark(self, index: int) -> None:
        """Forget what there is of an unfinished sample: it starts again."""
        self.parked.pop(index, None)
        self.failures.pop(index, None)

    def fail(self, lease: Lease) -> None:
        """Note that an attempt ended without a sample; forget the tokens from which several have got nowhere."""
        parked = self.parked.get(lease.index, NOTHING).length
        if not parked or parked > len(lease.prefix):
            return
        self.failures[lease.index] = self.failures.get(lease.index, 0) + 1
        if self.failures[lease.index] >= MAX_FAILURES:
            self.unpark(lease.index)

    @property
    def is_complete(self) -> bool:
        """Whether all samples are finished."""
        return len(self.samples) == len(self.attempts)

    @property
    def has_variance(self) -> bool:
        """Whether rewards differ: without that, GRPO's advantage is zero and the group teaches nothing."""
        return len({sample.reward for sample in self.samples.values()}) > 1

    def missing(self) -> tuple[int, ...]:
        """Return the indices of unfinished samples."""
        return tuple(index for index in range(len(self.attempts)) if index not in self.samples)

    def closed(self) -> Group:
        """Return the complete group as the trainer gets it."""
        return Group(id=self.id, samples=tuple(self.samples[index] for index in range(len(self.attempts))))


class GroupBook:
    """All groups under way, the samples that wait for a worker, and the groups that wait for the trainer."""

    def __init__(self, group_size: int, epoch: int) -> None:
        self.live: dict[GroupId, OpenGroup] = {}
        """Open and ready groups, oldest first."""
        self.training: tuple[Group, ...] = ()
        self._group_size = group_size
        self._next_id = epoch * EPOCH_STRIDE
        self._waiting: list[tuple[GroupId, int]] = []
        self._ready: list[tuple[int, GroupId]] = []
        self._ready_ids: set[GroupId] = set()

    @property
    def outstanding(self) -> int:
        """Samples of all groups under way, whole groups, the batch being trained included."""
        return self._group_size * (len(self.live) + len(self.training))

    @property
    def ready_count(self) -> int:
        """Groups that wait for the trainer."""
        return len(self._ready_ids)

    def open(self, prompt: Prompt, due_step: int) -> OpenGroup:
        """Admit a new group; all its samples wait for a worker."""
        group = OpenGroup(GroupId(self._next_id), prompt, due_step, [0] * self._group_size)
        self._next_id += 1
        self.live[group.id] = group
        for index in range(self._group_size):
            heapq.heappush(self._waiting, (group.id, index))
        return group

    def first_waiting(self) -> tuple[OpenGroup, int] | None:
        """Return the sample to lease next, oldest group first (so a lost sample goes before new ones), or None."""
        while self._waiting:
            group_id, index = self._waiting[0]
            group = self.live.get(group_id)
            if group is not None:
                return group, index
            heapq.heappop(self._waiting)  # its group was dropped
        return None

    def next_waiting(self, is_fast: bool) -> tuple[OpenGroup, int] | None:
        """Return the sample to lease to a fast or to a slow worker: of those that are due first, the longest expected.

        For a slow one the shortest: a batch is complete with its last sample. Among equals the oldest group's.
        """
        first = self.first_waiting()
        if first is None:
            return None
        due = [
            (group, index)
            for group_id, index in self._waiting
            if (group := self.live.get(group_id)) is not None and group.due_step == first[0].due_step
        ]
        sign = -1.0 if is_fast else 1.0
        return min(due, key=lambda one: (sign * one[0].expected_tokens(one[1]), one[0].id, one[1]))

    def pop_waiting(self, group: OpenGroup, index: int) -> None:
        """Remove a sample that is leased now."""
        if self._waiting[0] == (group.id, index):
            heapq.heappop(self._waiting)
            return
        self._waiting.remove((group.id, index))
        heapq.heapify(self._waiting)

    def requeue(self, group: OpenGroup, index: int) -> None:
        """Let an unfinished sample wait again, under a new attempt number."""
        group.attempts[index] += 1
        heapq.heappush(self._waiting, (group.id, index))

    def mark_ready(self, group: OpenGroup) -> None:
        """Let a complete group wait for the trainer, oldest data first."""
        assert group.oldest_version is not None
        heapq.heappush(self._ready, (group.oldest_version, group.id))
        self._ready_ids.add(group.id)

    def discard(self, group: OpenGroup) -> None:
        """Let a group go: dropped or filtered. It stops counting at once."""
        del self.live[group.id]
        self._ready_ids.discard(group.id)

    def take(self, count: int) -> tuple[Group, ...]:
        """Move the `count` ready groups with the oldest data into training and return them; so many must be ready."""
        taken: list[Group] = []
        while len(taken) < count:
            _, group_id = heapq.heappop(self._ready)
            if group_id not in self._ready_ids:
                continue  # it was dropped while it waited
            self._ready_ids.remove(group_id)
            taken.append(self.live.pop(group_id).closed())
        self.training = tuple(taken)
        return self.training

    def trained(self) -> tuple[Group, ...]:
        """Forget the batch in training, published or abandoned, and return it."""
        groups, self.training = self.training, ()
        return groups
