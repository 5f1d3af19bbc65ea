"""Files of a checkpoint between machines: ranks that do not see rank 0's folder write their own and send them there.

Whether a rank sees it is tried, not configured: machines may share a folder or not. Pieces bound what is in memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist

from hexcloud.domain.errors import EngineError
from hexcloud.domain.frozen import Frozen
from hexcloud.runtime.trainer_ranks import Ranks

_PIECE = 16 << 20


class _Listing(Frozen):
    """Files to come, by path in their folder, with their sizes."""

    files: dict[str, int]


@contextmanager
def gathered(folder: Path, ranks: Ranks) -> Iterator[Path]:
    """Give each rank a folder to write into; after the block all files are in rank 0's `folder`.

    Other ranks need not know it. All ranks call it.
    """
    if ranks.rank == 0:
        folder.mkdir(parents=True)
    folder = Path(ranks.tell(str(folder).encode() if ranks.rank == 0 else None).decode())
    with TemporaryDirectory(prefix="shards-") as aside:
        is_here = ranks.rank == 0 or folder.is_dir()
        own = folder if is_here else Path(aside)
        yield own
        for sender in _those(not is_here, ranks):
            if ranks.rank == sender:
                _send(own, 0)
            elif ranks.rank == 0:
                _receive(folder, sender)


@contextmanager
def brought(folder: Path, ranks: Ranks) -> Iterator[Path]:
    """Give each rank a folder with the files of rank 0's `folder`; copies go after the block. All ranks call it."""
    folder = Path(ranks.tell(str(folder).encode() if ranks.rank == 0 else None).decode())
    is_here = folder.is_dir()
    with TemporaryDirectory(prefix="checkpoint-") as aside:
        for receiver in _those(not is_here, ranks):
            if ranks.rank == 0:
                _send(folder, receiver)
            elif ranks.rank == receiver:
                _receive(Path(aside), 0)
        yield folder if is_here else Path(aside)


def _those(is_one: bool, ranks: Ranks) -> list[int]:
    """Return the ranks of which something is true."""
    flags = torch.zeros(ranks.size)
    flags[ranks.rank] = float(is_one)
    return [int(rank) for rank in ranks.sum(flags).nonzero()[:, 0]]


def _send(folder: Path, receiver: int) -> None:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    listing = _Listing(files={path.relative_to(folder).as_posix(): path.stat().st_size for path in paths})
    message = bytearray(listing.model_dump_json().encode())
    dist.send(torch.tensor([len(message)]), receiver)
    dist.send(torch.frombuffer(message, dtype=torch.uint8), receiver)
    for path in paths:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                dist.send(torch.frombuffer(bytearray(piece), dtype=torch.uint8), receiver)


def _receive(folder: Path, sender: int) -> None:
    length = torch.zeros(1, dtype=torch.long)
    dist.recv(length, sender)
    message = torch.empty(int(length), dtype=torch.uint8)
    dist.recv(message, sender)
    for name, size in _Listing.model_validate_json(message.numpy().tobytes()).files.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise EngineError(f"a rank sends a file {name}, which leads out of the checkpoint")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for start in range(0, size, _PIECE):
                piece = torch.empty(min(_PIECE, size - start), dtype=torch.uint8)
                dist.recv(piece, sender)
                file.write(piece.numpy().tobytes())
