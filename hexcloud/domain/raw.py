"""Raw: samples and beginnings on the wire, with their numbers as arrays. 4,096 tokens take 48 kB and no parsing.

A message is the length of its head (u32), its head (JSON: the message, each sample with its `length` in the place of
its numbers), and then for one sample after another its tokens (i32), logprobs (f32) and versions (i32); little-endian.
Engines compute logprobs in f32, so nothing is lost.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from pydantic import Field, PrivateAttr, ValidationError

from hexcloud.domain.bounds import Count, Number
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.frozen import Message
from hexcloud.domain.lease import GroupId, LeaseId
from hexcloud.domain.messages import Batch, Partial, PartialCommit, Submission
from hexcloud.domain.packed import ARRAYS, WORD, PackedResponse, packed_numbers
from hexcloud.domain.response import Response
from hexcloud.domain.sample import Group, Sample

RAW = "application/octet-stream"
"""Content type of a raw message."""
MAX_BODY = 64 * 1024 * 1024
"""Bytes of a message. A sample of 4,096 tokens takes 48 kB as arrays; a node delivers a group or a few at a time."""
_LENGTH = struct.Struct("<I")
_NUMBERS = ("tokens", "logprobs", "versions")


class _SampleHead(Message):
    lease: LeaseId
    attempt: Number
    group: GroupId
    index: Count
    epoch: Number
    prompt_ids: tuple[int, ...]
    reward: float
    length: int = Field(gt=0, lt=2**31)
    """Tokens of the response."""


class _SubmissionHead(Message):
    node_id: NodeId
    samples: tuple[_SampleHead, ...]


class _GroupHead(Message):
    id: GroupId
    samples: tuple[_SampleHead, ...]


class _BatchHead(Message):
    rest: Batch
    """All but the groups."""
    groups: tuple[_GroupHead, ...]


class _PartialHead(Message):
    lease: LeaseId
    attempt: Number
    start: Count
    length: int = Field(ge=0, lt=2**31)


class _CommitHead(Message):
    node_id: NodeId
    released: bool
    partials: tuple[_PartialHead, ...]


class _Sealed:
    """What has tokens, logprobs and versions, and makes objects of them only if it is asked."""

    _made: PackedResponse

    def __getattr__(self, name: str) -> Any:
        if name not in _NUMBERS:
            return super().__getattr__(name)  # type: ignore[misc]
        self.__dict__.update(self._made.opened()._asdict())
        return self.__dict__[name]


class SealedSample(_Sealed, Sample):
    """A sample whose numbers stay as they came until somebody looks at each: nobody does before it is trained."""

    _made: PackedResponse = PrivateAttr()

    def seal(self, made: PackedResponse) -> "SealedSample":
        """Take the response."""
        self._made = made
        return self

    @property
    def numbers(self) -> bytes:
        """The arrays, one after another."""
        return self._made.numbers

    @property
    def length(self) -> int:
        """Tokens of the response."""
        return self._made.length

    @property
    def oldest_version(self) -> int:
        """The version of the oldest token."""
        return self._made.oldest_version

    @property
    def newest_version(self) -> int:
        """The version of the newest token."""
        return self._made.newest_version

    def has_ids_below(self, vocabulary: int) -> bool:
        """As of Response."""
        return self._made.has_ids_below(vocabulary)

    @property
    def has_sound_logprobs(self) -> bool:
        """As of Response."""
        return self._made.has_sound_logprobs

    def continues(self, begun: Response) -> bool:
        """As of Response."""
        return self._made.continues(begun)

    def opened(self) -> Sample:
        """Return it with its numbers as everybody reads them."""
        known = {name: value for name, value in self.__dict__.items() if name not in _NUMBERS}
        return Sample.model_construct(**self._made.opened()._asdict(), **known)


class SealedPartial(_Sealed, Partial):
    """Tokens of an unfinished sample as they came: nobody looks at each unless another worker goes on from them."""

    _made: PackedResponse = PrivateAttr()

    def seal(self, made: PackedResponse) -> "SealedPartial":
        """Take the tokens."""
        self._made = made
        return self

    @property
    def made(self) -> PackedResponse:
        """As of Partial."""
        return self._made


def pack_submission(message: Submission) -> bytes:
    """Return a submission as bytes."""
    head = _SubmissionHead(node_id=message.node_id, samples=_heads(message.samples))
    return b"".join(_framed(head, message.samples))


def parse_submission(body: bytes) -> Submission:
    """Return the submission in these bytes, with sealed samples. Raises ValueError when they are none."""
    head, numbers = _opened(body, _SubmissionHead)
    samples = tuple(_sealed(one, numbers) for one in head.samples)
    _end(numbers)
    return Submission.model_construct(node_id=head.node_id, samples=samples)


def pack_commit(message: PartialCommit) -> bytes:
    """Return a commit as bytes."""
    heads = tuple(
        _PartialHead.model_construct(lease=one.lease, attempt=one.attempt, start=one.start, length=len(one.tokens))
        for one in message.partials
    )
    head = _CommitHead(node_id=message.node_id, released=message.released, partials=heads)
    return b"".join(_framed(head, message.partials))


def parse_commit(body: bytes) -> PartialCommit:
    """Return the commit in these bytes, with sealed partials. Raises ValueError when they are none."""
    head, numbers = _opened(body, _CommitHead)
    partials = tuple(
        SealedPartial.model_construct(**_known(one)).seal(numbers.take(one.length)) for one in head.partials
    )
    _end(numbers)
    return PartialCommit.model_construct(node_id=head.node_id, released=head.released, partials=partials)


def pack_batch(message: Batch) -> bytes:
    """Return a batch as bytes."""
    groups = tuple(_GroupHead(id=group.id, samples=_heads(group.samples)) for group in message.groups)
    head = _BatchHead(rest=message.model_copy(update={"groups": ()}), groups=groups)
    return b"".join(_framed(head, (sample for group in message.groups for sample in group.samples)))


def parse_batch(body: bytes) -> Batch:
    """Return the batch in these bytes. Raises ValueError when they are none."""
    head, numbers = _opened(body, _BatchHead)
    groups = tuple(
        Group(id=group.id, samples=tuple(_sealed(one, numbers).opened() for one in group.samples))
        for group in head.groups
    )
    _end(numbers)
    return head.rest.model_copy(update={"groups": groups})


def opened(message: Batch) -> Batch:
    """Return a batch without sealed samples."""
    groups = tuple(
        Group(
            id=group.id, samples=tuple(one.opened() if isinstance(one, SealedSample) else one for one in group.samples)
        )
        for group in message.groups
    )
    return message.model_copy(update={"groups": groups})


def _heads(samples: Iterable[Sample]) -> tuple[_SampleHead, ...]:
    return tuple(
        _SampleHead.model_construct(
            lease=sample.lease,
            attempt=sample.attempt,
            group=sample.group,
            index=sample.index,
            epoch=sample.epoch,
            prompt_ids=sample.prompt_ids,
            reward=sample.reward,
            length=sample.length,
        )
        for sample in samples
    )


def _framed(head: Message, samples: Iterable[Sample | Partial]) -> Iterator[bytes]:
    told = head.model_dump_json().encode()
    yield _LENGTH.pack(len(told))
    yield told
    for sample in samples:
        if isinstance(sample, SealedSample):
            yield sample.numbers
            continue
        yield from packed_numbers(Response(sample.tokens, sample.logprobs, sample.versions))


Head = TypeVar("Head", bound=Message)


class _Numbers:
    """What follows the head."""

    def __init__(self, content: memoryview) -> None:
        self._left = content

    def take(self, length: int) -> PackedResponse:
        """Return the numbers of so many tokens."""
        size = ARRAYS * length * WORD
        if len(self._left) < size:
            raise ValueError("a raw message ends before its numbers do")
        found, self._left = bytes(self._left[:size]), self._left[size:]
        return PackedResponse(found, length)

    @property
    def is_empty(self) -> bool:
        """Was everything taken?"""
        return not self._left


def _opened(body: bytes, kind: type[Head]) -> tuple[Head, _Numbers]:
    if len(body) < _LENGTH.size:
        raise ValueError("a raw message has a head")
    (length,) = _LENGTH.unpack_from(body)
    begin = _LENGTH.size + length
    if begin > len(body):
        raise ValueError("a raw message ends before its head does")
    try:
        return kind.model_validate_json(body[_LENGTH.size : begin]), _Numbers(memoryview(body)[begin:])
    except ValidationError as error:
        raise ValueError(f"a raw message's head: {error}") from error


def _end(numbers: _Numbers) -> None:
    if not numbers.is_empty:
        raise ValueError("a raw message has more numbers than its samples")


def _sealed(head: _SampleHead, numbers: _Numbers) -> SealedSample:
    """Return a sample whose lengths agree by themselves; what its numbers are worth is for others to say."""
    return SealedSample.model_construct(**_known(head)).seal(numbers.take(head.length))


def _known(head: _SampleHead | _PartialHead) -> dict[str, Any]:
    """Return what a head says beside the numbers."""
    return {name: value for name, value in head if name != "length"}
