"""Deltas on disk: what changed from one safetensors file to the next, whole and verified before it is used.

The file: magic, length and content of the new file's header (deflated; empty when it is the base's), then each block's
length and code (delta_code). It is made of the files' bytes, so the result has the digest that its manifest names.
Data is looked at as 16-bit words: made for bf16, right for every type, and given up where it is no gain.
"""

import hashlib
import os
import struct
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np

from hexcloud.domain.delta import WeightsDelta
from hexcloud.domain.errors import EngineError
from hexcloud.domain.messages import WeightsManifest
from hexcloud.runtime.chunks import CHUNK_BYTES, Digests
from hexcloud.runtime.delta_code import BLOCK_WORDS, Words, encode, patch

MAGIC = b"HXDELTA2"
_LENGTH = struct.Struct("<I")
_FILE_LENGTH = struct.Struct("<Q")
_MAX_HEADER = 100_000_000
"""The safetensors format's own limit, bytes."""
_MAX_CODE = 4 * BLOCK_WORDS
_AHEAD = 4
"""Blocks under way between those who patch and those who hash and write."""
THREADS = 2
"""Blocks are coded side by side, as numpy lets go of the interpreter's lock."""


def make_delta(
    base: tuple[Path, WeightsManifest], result: tuple[Path, WeightsManifest], target: Path, most_of_whole: float = 1.0
) -> WeightsDelta | None:
    """Write the delta between two versions' files; None, and no file, when it is no less than this part of the whole.

    Raises EngineError when a file is not a safetensors file.
    """
    (before, old), (after, new) = _read(base[0]), _read(result[0])
    if len(old) != len(new) or old.nbytes + len(before) != base[0].stat().st_size:
        return None  # other tensors, or a last byte that is no word
    digests = Digests(CHUNK_BYTES)
    with _draft(target) as file:
        for piece in chain(_opening(before, after), (_framed(code) for code in codes(old, new))):
            digests.add(piece)
            file.write(piece)
            if digests.size >= most_of_whole * result[1].size:
                return None
        _finish(file, target)
    sha256, chunks = digests.finish()
    return WeightsDelta(
        base=base[1], result=result[1], sha256=sha256, size=digests.size, chunk_bytes=CHUNK_BYTES, chunks=chunks
    )


def apply_delta(base: Path, delta: tuple[Path, WeightsDelta], target: Path) -> None:
    """Write the result's safetensors file. `target` appears whole and with the digest of its manifest, or not at all.

    Raises EngineError when the delta is damaged or was made against other bytes; the way out is the whole version.
    """
    path, told = delta
    try:
        with path.open("rb") as code, _draft(target) as file:
            digest = _write_result(base, code, file)
            if digest != told.result.sha256:
                raise EngineError(f"delta {path.name}: the result is {digest[:12]}, not {told.result.sha256[:12]}")
            _finish(file, target)
    except (OSError, struct.error) as error:
        raise EngineError(f"delta {path.name} cannot be applied to {base}: {error}") from error


@contextmanager
def _draft(target: Path) -> Iterator[BinaryIO]:
    """Give a file beside the target, which goes unless `_finish` gave it the target's name."""
    path = target.with_name(f".{target.name}.draft")
    try:
        with path.open("wb") as file:
            yield file
    finally:
        path.unlink(missing_ok=True)


def _finish(file: BinaryIO, target: Path) -> None:
    file.flush()
    Path(file.name).replace(target)


def _write_result(base: Path, code: BinaryIO, file: BinaryIO) -> str:
    """Read the base block by block and patch it, while blocks before are hashed and written; return the digest."""
    digest = hashlib.sha256()

    def sink(piece: memoryview) -> None:
        digest.update(piece)
        file.write(piece)

    with base.open("rb") as old, ThreadPoolExecutor(1) as pool:
        before = old.read(_data_begin(old))
        under_way = deque([pool.submit(sink, memoryview(_opened(code, before)))])
        buffers = deque(np.empty(BLOCK_WORDS, "<u2") for _ in range(_AHEAD))
        while size := old.readinto(buffers[0].data):
            words = buffers[0][: size // 2]
            patch(words, _piece(code, _MAX_CODE))
            under_way.append(pool.submit(sink, words.data))
            if len(under_way) == _AHEAD:
                under_way.popleft().result()
            buffers.rotate(-1)
        for future in under_way:
            future.result()
    if code.read(1):
        raise EngineError("delta: more bytes than blocks")
    return digest.hexdigest()


def _data_begin(file: BinaryIO) -> int:
    """Return where a safetensors file's data begins, and leave the file at its own beginning."""
    (length,) = _FILE_LENGTH.unpack(file.read(_FILE_LENGTH.size))
    begin, size = _FILE_LENGTH.size + int(length), file.seek(0, os.SEEK_END)
    if length > _MAX_HEADER or begin > size:
        raise EngineError(f"{file.name} is not a safetensors file: its header has {length} bytes")
    file.seek(0)
    return begin


def _read(path: Path) -> tuple[bytes, Words]:
    """Return a safetensors file's header with its length, and its data as words, mapped."""
    try:
        with path.open("rb") as file:
            header = file.read(_data_begin(file))
    except (OSError, struct.error) as error:
        raise EngineError(f"{path} is not a safetensors file: {error}") from error
    words = (path.stat().st_size - len(header)) // 2
    if not words:
        return header, np.empty(0, np.uint16)
    return header, np.asarray(np.memmap(path, np.dtype("<u2"), "r", len(header), (words,)))


def _blocks(words: Words) -> Iterator[Words]:
    return (words[begin : begin + BLOCK_WORDS] for begin in range(0, len(words), BLOCK_WORDS))


def _opening(before: bytes, after: bytes) -> Iterator[bytes]:
    header = b"" if after == before else zlib.compress(after)
    yield MAGIC + _LENGTH.pack(len(header)) + header


def codes(old: Words, new: Words) -> Iterator[bytes]:
    """Yield each block's code, a few blocks ahead of the one who takes them."""
    with ThreadPoolExecutor(THREADS) as pool:
        ahead: list[Future[bytes]] = []
        for pair in zip(_blocks(old), _blocks(new), strict=True):
            ahead.append(pool.submit(encode, *pair))
            if len(ahead) > _AHEAD:
                yield ahead.pop(0).result()
        for future in ahead:
            yield future.result()


def _framed(code: bytes) -> bytes:
    return _LENGTH.pack(len(code)) + code


def _piece(code: BinaryIO, most: int) -> bytes:
    length = code.read(_LENGTH.size)
    size = _LENGTH.unpack(length)[0] if len(length) == _LENGTH.size else most + 1
    if size > most:
        raise EngineError("delta: it ends early, or a block is longer than any can be")
    return code.read(size)


def _opened(code: BinaryIO, before: bytes) -> bytes:
    if code.read(len(MAGIC)) != MAGIC:
        raise EngineError("delta: it does not begin like one")
    packed = _piece(code, _MAX_HEADER)
    if not packed:
        return before
    try:
        return zlib.decompressobj().decompress(packed, _MAX_HEADER)
    except zlib.error as error:
        raise EngineError(f"delta: its header is damaged: {error}") from error
