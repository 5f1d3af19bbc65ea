"""Raw: finished samples on the wire, with their numbers as arrays. A sample of 4,096 tokens takes 48 kB and no parsing.

A message is the length of its head (u32), its head (JSON: the message, each sample with its `length` in the place of
its numbers), and then for one sample after another its tokens (i32), logprobs (f32) and versions (i32); little-endian.
Engines compute logprobs in f32, so nothing is lost.
"""

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeVar

from pydantic import Field, PrivateAttr, ValidationError

from hexcloud.domain.bounds import Count, Number
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.frozen import Frozen, Message
from hexcloud.domain.lease import GroupId, LeaseId
from hexcloud.domain.messages import Batch, Submission
from hexcloud.domain.response import LEAST_LOGPROB, MOST_LOGPROB, Response
from hexcloud.domain.sample import Group, Sample

RAW = "application/octet-stream"
"""Content type of a raw message."""
_LENGTH = struct.Struct("<I")
_ARRAYS, _WORD = 3, 4
"""Arrays of a sample, bytes of a number."""
_SIGN = 2**31
_NUMBERS = ("tokens", "logprobs", "versions")


def _top(value: float) -> int:
    """Return sign and the larger part of the exponent of an f32."""
    return struct.pack(">f", value)[0]


_SOUND_TOPS = bytes([*range(_top(0.0), _top(MOST_LOGPROB)), *range(_top(-0.0), _top(LEAST_LOGPROB))])
"""How logprobs begin that are between those two: neither infinities nor what is no number does."""


Code = Literal["i", "f"]


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


class SealedSample(Sample):
    """A sample whose numbers stay as they came until somebody looks at each: nobody does before it is trained.

    As objects of their own they would take ten times the memory, and most of the time that a delivery takes.
    """

    _numbers: bytes = PrivateAttr()
    _length: int = PrivateAttr()
    _oldest: int = PrivateAttr()
    _newest: int = PrivateAttr()

    def seal(self, numbers: bytes, length: int) -> "SealedSample":
        """Take the numbers of so many tokens."""
        self._numbers, self._length = numbers, length
        packed = numbers[2 * length * _WORD :]
        versions = _array("i", packed[:_WORD] if packed == packed[:_WORD] * length else packed)
        self._oldest, self._newest = int(min(versions)), int(max(versions))
        return self

    @property
    def numbers(self) -> bytes:
        """The arrays, one after another."""
        return self._numbers

    @property
    def length(self) -> int:
        """Tokens of the response."""
        return self._length

    @property
    def oldest_version(self) -> int:
        """The version of the oldest token."""
        return self._oldest

    @property
    def newest_version(self) -> int:
        """The version of the newest token."""
        return self._newest

    def has_ids_below(self, vocabulary: int) -> bool:
        """As of Response."""
        # All at once, as one long number, in a third of the time: what is added lifts ids that are too large to 2^31,
        # where the sign is, and nothing is carried on from an id that had no sign.
        ids, lift, sign = (
            int.from_bytes(packed, "little")
            for packed in (
                self._numbers[: self._length * _WORD],
                _LENGTH.pack(_SIGN - vocabulary) * self._length,
                _LENGTH.pack(_SIGN) * self._length,
            )
        )
        return not (ids | (ids + lift)) & sign

    @property
    def has_sound_logprobs(self) -> bool:
        """As of Response."""
        size = self._length * _WORD
        return not self._numbers[size : 2 * size][_WORD - 1 :: _WORD].translate(None, _SOUND_TOPS)

    def continues(self, begun: Response) -> bool:
        """As of Response."""
        whole = self._length * _WORD
        known = [_packed("i", begun.tokens), _packed("f", begun.logprobs), _packed("i", begun.versions)]
        return len(known[0]) <= whole and all(
            self._numbers[place * whole :].startswith(one) for place, one in enumerate(known)
        )

    def opened(self) -> Sample:
        """Return it with its numbers as everybody reads them."""
        size = self._length * _WORD
        first, second, third = (self._numbers[begin : begin + size] for begin in (0, size, 2 * size))
        known = {name: value for name, value in self.__dict__.items() if name not in _NUMBERS}
        return Sample.model_construct(
            tokens=tuple(_array("i", first)), logprobs=tuple(_array("f", second)), versions=tuple(_array("i", third)),
            **known,
        )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        if name not in _NUMBERS:
            return super().__getattr__(name)  # type: ignore[misc]
        self.__dict__.update({one: getattr(self.opened(), one) for one in _NUMBERS})
        return self.__dict__[name]


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


def _framed(head: Frozen, samples: Iterable[Sample]) -> Iterator[bytes]:
    told = head.model_dump_json().encode()
    yield _LENGTH.pack(len(told))
    yield told
    for sample in samples:
        if isinstance(sample, SealedSample):
            yield sample.numbers
            continue
        yield _packed("i", sample.tokens)
        yield _packed("f", sample.logprobs)
        yield _packed("i", sample.versions)


Head = TypeVar("Head", bound=Frozen)


class _Numbers:
    """What follows the head."""

    def __init__(self, content: memoryview) -> None:
        self._left = content

    def take(self, length: int) -> bytes:
        """Return the numbers of so many tokens."""
        size = _ARRAYS * length * _WORD
        if len(self._left) < size:
            raise ValueError("a raw message ends before its numbers do")
        found, self._left = bytes(self._left[:size]), self._left[size:]
        return found

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
    known: dict[str, Any] = {name: value for name, value in head if name != "length"}
    sample = SealedSample.model_construct(**known)
    return sample.seal(numbers.take(head.length), head.length)


def _packed(code: Code, values: Iterable[float]) -> bytes:
    return _little(array(code, values)).tobytes()


def _array(code: Code, packed: bytes) -> "array[Any]":
    found: array[Any] = array(code)
    found.frombytes(packed)
    return _little(found)


def _little(values: "array[Any]") -> "array[Any]":
    if sys.byteorder == "big":
        values.byteswap()
    return values
