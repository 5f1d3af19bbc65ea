"""Chunks: a file's digest and its parts' digests, and a download that goes on from the last right part."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hexcloud.domain.errors import EngineError

CHUNK_BYTES = 4 << 20


class Digests:
    """Hashes a file as it is written: the whole, and each chunk."""

    def __init__(self, chunk_bytes: int) -> None:
        self._chunk_bytes = chunk_bytes
        self._whole = hashlib.sha256()
        self._chunk = hashlib.sha256()
        self._chunks: list[str] = []
        self.size = 0

    def add(self, piece: bytes) -> None:
        """Take the next bytes."""
        self._whole.update(piece)
        view = memoryview(piece)
        while view:
            room = self._chunk_bytes - self.size % self._chunk_bytes
            self._chunk.update(view[:room])
            self.size += len(view[:room])
            view = view[room:]
            if self.size % self._chunk_bytes == 0:
                self._close()

    def finish(self) -> tuple[str, tuple[str, ...]]:
        """Return the digest of all and those of the chunks."""
        if self.size % self._chunk_bytes:
            self._close()
        return self._whole.hexdigest(), tuple(self._chunks)

    def _close(self) -> None:
        self._chunks.append(self._chunk.hexdigest())
        self._chunk = hashlib.sha256()


@dataclass(frozen=True)
class ChunkList:
    """What a file must be."""

    size: int
    chunk_bytes: int
    chunks: Sequence[str]
    """sha256 of each."""

    def span(self, index: int) -> tuple[int, int]:
        """Return where a chunk begins and ends."""
        return index * self.chunk_bytes, min((index + 1) * self.chunk_bytes, self.size)


class PartFile:
    """A download so far. Only right chunks count: `size` is where to go on, also after a crash."""

    def __init__(self, path: Path, told: ChunkList) -> None:
        """Open what an earlier try left; `resume` finds out what of it counts."""
        self._told = told
        self._file = path.open("a+b")
        self._held = bytearray()
        self._right = 0

    def resume(self) -> None:
        """Forget what an earlier try left from the first chunk on that is not right. Blocks: it reads the rest."""
        told = self._told
        self._file.seek(0)
        while self._right < len(told.chunks):
            begin, end = told.span(self._right)
            if not self._is_right(self._file.read(end - begin)):
                break
            self._right += 1
        self._file.truncate(self.size)

    @property
    def size(self) -> int:
        """Bytes that are there and right."""
        return min(self._right * self._told.chunk_bytes, self._told.size)

    @property
    def is_whole(self) -> bool:
        """Is everything there?"""
        return self._right == len(self._told.chunks)

    def append(self, piece: bytes) -> None:
        """Take the next bytes from `size` plus what was appended since. Raises EngineError at the first wrong chunk."""
        self._held += piece
        while not self.is_whole:
            begin, end = self._told.span(self._right)
            if len(self._held) < end - begin:
                return
            chunk = bytes(self._held[: end - begin])
            if not self._is_right(chunk):
                self._held.clear()
                raise EngineError(f"chunk {self._right} is not the one meant: fetch again from byte {begin} on")
            self._file.write(chunk)
            del self._held[: len(chunk)]
            self._right += 1
        if self._held:
            raise EngineError(f"{len(self._held)} bytes came after the end")

    def close(self) -> None:
        """Write out what is right; a later try goes on from there."""
        self._file.close()

    def _is_right(self, chunk: bytes) -> bool:
        begin, end = self._told.span(self._right)
        return len(chunk) == end - begin and hashlib.sha256(chunk).hexdigest() == self._told.chunks[self._right]
