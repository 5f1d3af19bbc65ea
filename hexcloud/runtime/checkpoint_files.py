"""Files of a checkpoint between machines: ranks that do not see rank 0's folder write their own and send them there.

Whether a rank sees it is tried, not configured: machines may share a folder or not. Pieces bound what is in memory, and
are taken from all senders in turn, so that none waits for the whole of another. A machine is sent one copy, which its
ranks share.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from pydantic import Field

from hexcloud.domain.errors import EngineError
from hexcloud.domain.frozen import Frozen
from hexcloud.runtime.trainer_patience import together
from hexcloud.runtime.trainer_ranks import Ranks

_PIECE = 16 << 20


class _Said(Frozen):
    """What one rank says to another: of files to come, by path in their folder, or of where they are."""

    files: dict[str, int] = Field(default_factory=dict)
    """With their sizes."""
    digests: dict[str, str] = Field(default_factory=dict)
    """Of those that the sender wrote, to come or not."""
    folder: str = ""


class Gathering:
    """What a rank writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """Where to."""
        self.digests: dict[str, str] = {}
        """sha256 of what this rank wrote, by path in the folder: to be filled; then, on rank 0, of what all wrote."""


@contextmanager
def gathered(folder: Path, ranks: Ranks) -> Iterator[Gathering]:
    """Give each rank a folder to write into; after the block all files, and their digests, are on rank 0 in `folder`.

    Other ranks need not know it. All ranks call it.
    """
    if ranks.rank == 0:
        folder.mkdir(parents=True)
    folder = Path(ranks.tell(str(folder).encode() if ranks.rank == 0 else None).decode())
    with TemporaryDirectory(prefix="shards-") as aside:
        is_here = ranks.rank == 0 or folder.is_dir()
        gathering = Gathering(folder if is_here else Path(aside))
        yield gathering
        if ranks.rank == 0:
            together(ranks, partial(_take_all, gathering, ranks))
        else:
            together(ranks, partial(_hand_over, gathering, is_here))


@contextmanager
def brought(folder: Path, ranks: Ranks) -> Iterator[Path]:
    """Give each rank a folder with the files of rank 0's `folder`; copies go after the block. All ranks call it.

    Raises EngineError on a rank that does not see what its machine has.
    """
    folder = Path(ranks.tell(str(folder).encode() if ranks.rank == 0 else None).decode())
    lacking = {first_of_machine(rank, ranks) for rank in _those(not folder.is_dir(), ranks)} - {0}
    first = first_of_machine(ranks.rank, ranks)
    with TemporaryDirectory(prefix="checkpoint-") as aside:
        place = Path(aside) if first in lacking else folder
        if ranks.rank == 0:
            together(ranks, partial(_send, folder, sorted(lacking)))
        else:
            together(ranks, partial(_fetch, place, is_first=ranks.rank in lacking))
        if first in lacking:
            place = _told_in_machine(place, ranks)
        if not place.is_dir():
            raise EngineError(f"rank {ranks.rank} does not see {place}, which is on its machine")
        yield place
        ranks.sum(torch.zeros(1))  # a copy stays until all have read it


def first_of_machine(rank: int, ranks: Ranks) -> int:
    """Return the first rank of a rank's machine."""
    return rank - rank % ranks.formation.ranks


def _those(is_one: bool, ranks: Ranks) -> list[int]:
    """Return the ranks of which something is true."""
    flags = torch.zeros(ranks.size)
    flags[ranks.rank] = float(is_one)
    return [int(rank) for rank in ranks.sum(flags).nonzero()[:, 0]]


def _take_all(gathering: Gathering, ranks: Ranks) -> None:
    """Receive the files of all other ranks, and their digests."""
    coming = []
    for sender in range(1, ranks.size):
        said = _hear(sender)
        gathering.digests |= said.digests
        coming.append(_receive(gathering.folder, sender, said.files))
    while coming:
        coming = [files for files in coming if next(files, None) is not None]


def _hand_over(gathering: Gathering, is_here: bool) -> None:
    _say(_Said(files={} if is_here else _sizes(gathering.folder), digests=gathering.digests), 0)
    if not is_here:
        _pour(gathering.folder, _sizes(gathering.folder), [0])


def _send(folder: Path, receivers: list[int]) -> None:
    sizes = _sizes(folder) if receivers else {}
    for receiver in receivers:
        _say(_Said(files=sizes), receiver)
    _pour(folder, sizes, receivers)


def _fetch(folder: Path, is_first: bool) -> None:
    for _ in _receive(folder, 0, _hear(0).files) if is_first else ():
        pass


def _told_in_machine(place: Path, ranks: Ranks) -> Path:
    """Return the folder of a machine's first rank on all of its ranks."""
    first = first_of_machine(ranks.rank, ranks)
    if ranks.rank != first:
        return Path(_hear(first).folder)
    for other in range(first + 1, first + ranks.formation.ranks):
        _say(_Said(folder=str(place)), other)
    return place


def _sizes(folder: Path) -> dict[str, int]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}


def _say(said: _Said, receiver: int) -> None:
    message = bytearray(said.model_dump_json().encode())
    dist.send(torch.tensor([len(message)]), receiver)
    dist.send(torch.frombuffer(message, dtype=torch.uint8), receiver)


def _hear(sender: int) -> _Said:
    length = torch.zeros(1, dtype=torch.long)
    dist.recv(length, sender)
    message = torch.empty(int(length), dtype=torch.uint8)
    dist.recv(message, sender)
    return _Said.model_validate_json(message.numpy().tobytes())


def _pour(folder: Path, sizes: Mapping[str, int], receivers: list[int]) -> None:
    """Send files to several ranks at once; each is read once."""
    for name in sizes:
        with (folder / name).open("rb") as file:
            while piece := file.read(_PIECE):
                content = torch.frombuffer(bytearray(piece), dtype=torch.uint8)
                for work in [dist.isend(content, receiver) for receiver in receivers]:
                    assert work is not None  # this rank is in the group
                    work.wait()


def _receive(folder: Path, sender: int, sizes: Mapping[str, int]) -> Iterator[int]:
    """Write the files of one rank; yields the size of each piece. What is on disk then stays there."""
    for name, size in sizes.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise EngineError(f"a rank sends a file {name}, which leads out of the checkpoint")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for start in range(0, size, _PIECE):
                piece = torch.empty(min(_PIECE, size - start), dtype=torch.uint8)
                dist.recv(piece, sender)
                file.write(piece.numpy().tobytes())
                yield piece.numel()
            file.flush()
            os.fsync(file.fileno())
