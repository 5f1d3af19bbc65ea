"""WeightFolder: versions of the weights on a rollout node's disk, whole and verified or not there at all.

A download goes to a `.part` file that survives failures and is resumed; size and hash are checked before an atomic
rename gives it its name. Nothing waits for the disk then: what an earlier process has left is hashed before its first
use instead, as a machine that lost its power may have kept a name and not the bytes. Only the newest two versions are
kept. A delta is resumed from its last right chunk, and what it makes is verified in the same way.
"""

import asyncio
import hashlib
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import structlog

from hexcloud.domain.delta import WeightsDelta
from hexcloud.domain.errors import EngineError
from hexcloud.domain.messages import WeightsManifest
from hexcloud.runtime.atomic import sha256_of
from hexcloud.runtime.chunks import ChunkList, PartFile
from hexcloud.runtime.delta import apply_delta
from hexcloud.runtime.delta_way import WayCosts
from hexcloud.runtime.probe import LinkCap

KEEP = 2
"""The version in use and the one before: an engine that restarts midway finds either."""

MAX_HEADER = 100_000_000
"""The format's own limit, bytes."""

WEIGHTS_FILE = "model.safetensors"

FIRST_COSTS = WayCosts(link_bytes_per_s=125e6, apply_bytes_per_s=300e6)
"""Before anything was measured: 1 Gb/s, and what benchmarks/weight_sync.py finds from file to file."""
MEASURED_FROM = 64 << 10
"""Bytes: what is less takes no time that says anything."""

Source = Callable[[WeightsManifest | WeightsDelta, int], AsyncIterator[bytes]]
"""Streams the bytes of a version's file, or of a delta's, from an offset on."""

log = structlog.get_logger()


class WeightFolder:
    """Where downloaded versions lie, and over which link they come in."""

    def __init__(self, folder: Path, cap: LinkCap) -> None:
        self._folder = folder
        self._cap = cap
        self.costs = FIRST_COSTS
        """As they were at last."""
        self._verified: set[Path] = set()
        """Directories whose file this process has checked."""
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def link_bytes_per_s(self) -> float | None:
        """Speed of an emulated link; None: a real one's, which nobody tells."""
        return self._cap.bucket.bytes_per_s

    def directory(self, manifest: WeightsManifest) -> Path:
        """Return the directory of a version, there or not."""
        return self._folder / f"{manifest.epoch}-{manifest.version}-{manifest.sha256[:12]}"

    def has(self, manifest: WeightsManifest) -> bool:
        """Is a version there, verified by this process? Of an earlier one's, `fetch` finds out."""
        directory = self.directory(manifest)
        return directory in self._verified and (directory / WEIGHTS_FILE).exists()

    def delta_path(self, delta: WeightsDelta) -> Path:
        """Return where a delta is, there or not."""
        name = f"{delta.result.epoch}-{delta.base.version}-{delta.result.version}-{delta.sha256[:12]}.delta"
        return self._folder / name

    async def fetch_delta(self, delta: WeightsDelta, source: Source) -> Path:
        """Return the verified file of a delta, downloading what is missing.

        Raises EngineError at the first wrong chunk, and whatever the source raises.
        """
        path = self.delta_path(delta)
        part = PartFile(path, ChunkList(delta.size, delta.chunk_bytes, delta.chunks))
        try:
            await asyncio.to_thread(part.resume)
            if not part.is_whole:
                await self._stream(delta, part.size, source, part.append)
            if not part.is_whole:
                raise EngineError(f"delta {path.name}: {part.size} of {delta.size} bytes came")
        finally:
            part.close()
        return path

    async def apply(self, delta: WeightsDelta, path: Path) -> Path:
        """Make a version of its base, which is there; return its directory. Raises EngineError when it is another."""
        directory, begun_s = self.directory(delta.result), time.monotonic()
        if not self.has(delta.result):
            directory.mkdir(exist_ok=True)
            base = self.directory(delta.base) / WEIGHTS_FILE
            # Under a name of its own until its configuration is beside it: a crash in between leaves no half.
            made = directory / "made.safetensors"
            await asyncio.to_thread(apply_delta, base, (path, delta), made)
            _settle(made, directory)
            self._verified.add(directory)
            seconds = max(1e-6, time.monotonic() - begun_s)
            if delta.result.size >= MEASURED_FROM:
                self.costs = WayCosts(self.costs.link_bytes_per_s, delta.result.size / seconds)
        return directory

    async def _stream(
        self, wanted: WeightsManifest | WeightsDelta, offset: int, source: Source, take: Callable[[bytes], None]
    ) -> None:
        """Let what is missing come in, at the link's pace, which is measured."""
        await asyncio.sleep(self._cap.latency_s)
        came, begun_s = 0, time.monotonic()
        async for piece in source(wanted, offset):
            await self._cap.bucket.take(len(piece))
            take(piece)
            came += len(piece)
        if came >= MEASURED_FROM:
            seconds = max(1e-6, time.monotonic() - begun_s)
            self.costs = WayCosts(came / seconds, self.costs.apply_bytes_per_s)

    async def fetch(self, manifest: WeightsManifest, source: Source) -> Path:
        """Return a directory with the verified `model.safetensors` of a version, downloading what is missing.

        Raises EngineError when the bytes are not those of the manifest, and whatever the source raises.
        """
        directory = self.directory(manifest)
        if self.has(manifest) or await asyncio.to_thread(_holds, directory, manifest):
            self._verified.add(directory)
            return directory
        part = _Part(directory.with_suffix(".part"))
        try:
            await asyncio.to_thread(part.resume)
            if part.size < manifest.size:
                await self._stream(manifest, part.size, source, part.append)
        finally:
            part.close()
        part.finish(manifest, directory)
        self._verified.add(directory)
        return directory

    def prune(self, newest: WeightsManifest) -> None:
        """Delete all but the newest KEEP versions, and parts of downloads that were overtaken."""
        for part in self._folder.glob("*.part"):
            if part.stem != self.directory(newest).name:
                part.unlink()
        for delta in self._folder.glob("*.delta"):
            epoch, _, version, _ = delta.name.split("-", 3)
            if (int(epoch), int(version)) < (newest.epoch, newest.version - KEEP):
                delta.unlink()
        directories = sorted((path for path in self._folder.iterdir() if path.is_dir()), key=_newest_first)
        for directory in directories[KEEP:]:
            self._verified.discard(directory)
            shutil.rmtree(directory)


class _Part:
    """A download so far: the file, and the running hash of all its bytes, those of earlier tries included."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest = hashlib.sha256()
        self.size = 0
        self._file = path.open("a+b")

    def resume(self) -> None:
        """Count what an earlier try left. Blocks: it reads it."""
        self._file.seek(0)
        while piece := self._file.read(1024 * 1024):
            self._count(piece)

    def append(self, piece: bytes) -> None:
        """Add bytes at the end."""
        self._file.write(piece)
        self._count(piece)

    def close(self) -> None:
        """Write out what there is; a later try goes on from there."""
        self._file.close()

    def finish(self, manifest: WeightsManifest, directory: Path) -> None:
        """Give the file its name. Raises EngineError when it is incomplete (it stays) or another one (it goes)."""
        if self.size < manifest.size:
            raise EngineError(f"weights {directory.name}: {self.size} of {manifest.size} bytes came")
        if self.size != manifest.size or self._digest.hexdigest() != manifest.sha256:
            self._path.unlink()
            raise EngineError(f"weights {directory.name}: {self.size} bytes, not those of the manifest")
        directory.mkdir(exist_ok=True)
        _settle(self._path, directory)

    def _count(self, piece: bytes) -> None:
        self._digest.update(piece)
        self.size += len(piece)


def _holds(directory: Path, manifest: WeightsManifest) -> bool:
    """Does a directory that an earlier process may have left hold a version? Blocks: it is read. Else it goes."""
    path = directory / WEIGHTS_FILE
    if not path.exists():
        return False
    if path.stat().st_size == manifest.size and sha256_of(path) == manifest.sha256:
        return True
    log.warning("weights_torn", version=manifest.version, path=str(path))
    shutil.rmtree(directory)
    return False


def _settle(path: Path, directory: Path) -> None:
    """Give a verified file its name beside its configuration."""
    if config := _config_of(path):
        (directory / "config.json").write_text(config)
    path.rename(directory / WEIGHTS_FILE)


def _config_of(path: Path) -> str | None:
    """Return the model's `config.json`, which the trainer writes into a safetensors file's metadata.

    The format (safetensors 0.8): a little-endian u64, then that many bytes of JSON whose `__metadata__` maps text to
    text.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > MAX_HEADER:
            return None
        try:
            header = json.loads(file.read(length))
        except ValueError:
            return None
    config = header.get("__metadata__", {}).get("config") if isinstance(header, dict) else None
    return config if isinstance(config, str) else None


def _newest_first(directory: Path) -> tuple[int, int]:
    epoch, version, _ = directory.name.split("-", 2)
    return -int(epoch), -int(version)
