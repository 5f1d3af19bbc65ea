"""PackedResponse: a response whose numbers stay as they came on the wire until somebody looks at each.

As objects of their own they would take ten times the memory, and most of the time that a delivery or a commit takes.
"""

import struct
import sys
from array import array
from collections.abc import Iterable
from typing import Any, Literal

from hexcloud.domain.response import LEAST_LOGPROB, MOST_LOGPROB, Response

ARRAYS, WORD = 3, 4
"""Arrays of a response, bytes of a number."""
_U32 = struct.Struct("<I")
_SIGN = 2**31
Code = Literal["i", "f"]


def _top(value: float) -> int:
    """Return sign and the larger part of the exponent of an f32."""
    return struct.pack(">f", value)[0]


_SOUND_TOPS = bytes([*range(_top(0.0), _top(MOST_LOGPROB)), *range(_top(-0.0), _top(LEAST_LOGPROB))])
"""How logprobs begin that are between those two: neither infinities nor what is no number does."""


class PackedResponse:
    """As Response; `numbers` are tokens (i32), logprobs (f32) and versions (i32), one array after another."""

    __slots__ = ("length", "newest_version", "numbers", "oldest_version")

    is_even = True
    """Its arrays are equally long by themselves."""

    def __init__(self, numbers: bytes, length: int) -> None:
        self.numbers, self.length = numbers, length
        packed = self._array_at(2)
        versions = unpacked("i", packed[:WORD] if packed == packed[:WORD] * length else packed)
        self.oldest_version: int = min(versions, default=0)
        """The version of the oldest token; 0 where there is none."""
        self.newest_version: int = max(versions, default=0)

    def has_ids_below(self, vocabulary: int) -> bool:
        """As of Response."""
        # All at once, as one long number, in a third of the time: what is added lifts ids that are too large to 2^31,
        # where the sign is, and nothing is carried on from an id that had no sign.
        ids, lift, sign = (
            int.from_bytes(one, "little")
            for one in (self._array_at(0), _U32.pack(_SIGN - vocabulary) * self.length, _U32.pack(_SIGN) * self.length)
        )
        return not (ids | (ids + lift)) & sign

    @property
    def has_sound_logprobs(self) -> bool:
        """As of Response."""
        return not self._array_at(1)[WORD - 1 :: WORD].translate(None, _SOUND_TOPS)

    def continues(self, begun: Response) -> bool:
        """As of Response."""
        known = packed_numbers(begun)
        return len(known[0]) <= self.length * WORD and all(
            self.numbers.startswith(one, place * self.length * WORD) for place, one in enumerate(known)
        )

    def opened(self) -> Response:
        """Return its numbers as everybody reads them."""
        tokens, logprobs, versions = (self._array_at(place) for place in range(ARRAYS))
        return Response(
            tuple(unpacked("i", tokens)), tuple(unpacked("f", logprobs)), tuple(unpacked("i", versions))
        )  # fmt: skip

    def gone_on(self, start: int, more: "PackedResponse") -> "PackedResponse":
        """Return the first `start` tokens of this and then more; so many there must be."""
        arrays = (self._array_at(place)[: start * WORD] + more._array_at(place) for place in range(ARRAYS))
        return PackedResponse(b"".join(arrays), start + more.length)

    def _array_at(self, place: int) -> bytes:
        size = self.length * WORD
        return self.numbers[place * size : (place + 1) * size]


Beginning = Response | PackedResponse
"""What there is of a response."""


def gone_on(begun: Beginning, start: int, more: Beginning) -> Beginning | None:
    """Return the first `start` tokens of what was begun and then more. None: there are not so many."""
    if not 0 <= start <= begun.length:
        return None
    if start == 0:
        return more
    if isinstance(begun, PackedResponse) and isinstance(more, PackedResponse):
        return begun.gone_on(start, more)
    first, rest = begun.opened(), more.opened()
    return Response(
        first.tokens[:start] + rest.tokens,
        first.logprobs[:start] + rest.logprobs,
        first.versions[:start] + rest.versions,
    )


def packed_numbers(made: Response) -> tuple[bytes, bytes, bytes]:
    """Return the arrays of a response."""
    return packed("i", made.tokens), packed("f", made.logprobs), packed("i", made.versions)


def packed(code: Code, values: Iterable[float]) -> bytes:
    """Return numbers of 4 bytes, little-endian."""
    return _little(array(code, values)).tobytes()


def unpacked(code: Code, content: bytes) -> "array[Any]":
    """Return the numbers in these bytes."""
    found: array[Any] = array(code)
    found.frombytes(content)
    return _little(found)


def _little(values: "array[Any]") -> "array[Any]":
    if sys.byteorder == "big":
        values.byteswap()
    return values
