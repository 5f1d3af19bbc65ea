"""rounds: moves packed into messages, and messages into rounds that keep every rank's buffers within a bound. Pure.

All ranks compute the same rounds, and each walks through its own part. A message is in one round for both its ends, so
nobody waits for somebody who is not on the way to him: no deadlock.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from hexcloud.runtime.reshard_layout import ITEM_BYTES
from hexcloud.runtime.reshard_plan import Move

LARGE_BYTES = 256 << 10
"""A move of this size is not worth a copy into a shared message: it may go from its place and into its place."""


@dataclass(frozen=True)
class Message:
    """Moves between the same two ranks, of one type, sent as one row of elements."""

    source: int
    target: int
    dtype: str
    moves: tuple[Move, ...]

    @property
    def size(self) -> int:
        """Elements."""
        return sum(move.segments.size for move in self.moves)

    @property
    def bytes(self) -> int:
        """Bytes."""
        return self.size * ITEM_BYTES[self.dtype]


def messages(moves: Iterable[Move], most_bytes: int) -> list[Message]:
    """Join small moves between the same ranks into messages of at most `most_bytes`; a large one is a message itself.

    The k-th messages of all pairs stand together, each rank's next to those of other ranks: all links are busy at once.
    """
    lanes: dict[tuple[int, int, str], list[list[Move]]] = defaultdict(list)
    large: dict[tuple[int, int, str], list[list[Move]]] = defaultdict(list)
    filled: dict[tuple[int, int, str], int] = {}
    for move in moves:
        lane = (move.source, move.target, move.dtype)
        if move.bytes >= LARGE_BYTES:
            large[lane].append([move])
            continue
        if lane not in filled or filled[lane] + move.bytes > most_bytes:
            lanes[lane].append([])
            filled[lane] = 0
        lanes[lane][-1].append(move)
        filled[lane] += move.bytes
    numbered = [
        (turn, target - source, source, dtype, tuple(batch))
        for source, target, dtype in {**large, **lanes}
        for turn, batch in enumerate(large[source, target, dtype] + lanes[source, target, dtype])
    ]
    numbered.sort(key=lambda entry: entry[:4])
    return [Message(source, source + step, dtype, batch) for _, step, source, dtype, batch in numbered]


def rounds(batches: Iterable[Message], most_bytes: int) -> list[list[Message]]:
    """Put each message into the first round in which both its ends have room.

    No rank sends and receives more than `most_bytes` in a round. Raises ValueError when a message is larger than that.
    """
    used: dict[int, list[int]] = defaultdict(list)
    turns: list[list[Message]] = []
    for message in batches:
        if message.bytes > most_bytes:
            raise ValueError(f"a message of {message.bytes} bytes does not fit into {most_bytes}")
        ends = used[message.source], used[message.target]
        turn = max(_first_with_room(end, message.bytes, most_bytes) for end in ends)
        while any(_taken(end, turn) + message.bytes > most_bytes for end in ends):
            turn += 1
        for end in ends:
            end.extend([0] * (turn + 1 - len(end)))
            end[turn] += message.bytes
        turns.extend([] for _ in range(turn + 1 - len(turns)))
        turns[turn].append(message)
    return turns


def _first_with_room(rounds_used: list[int], size: int, most_bytes: int) -> int:
    return next((turn for turn, used in enumerate(rounds_used) if used + size <= most_bytes), len(rounds_used))


def _taken(rounds_used: list[int], turn: int) -> int:
    return rounds_used[turn] if turn < len(rounds_used) else 0
