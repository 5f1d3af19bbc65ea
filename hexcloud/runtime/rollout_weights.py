"""WeightFolder: versions of the weights on a rollout node's disk, whole and verified or not there at all.

A download goes to a `.part` file that survives failures and is resumed; size and hash are checked before an atomic
rename gives it its name. Only the newest two versions are kept.
"""

import asyncio
import hashlib
import json
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from hexcloud.domain.errors import EngineError
from hexcloud.domain.messages import WeightsManifest
from hexcloud.runtime.probe import LinkCap

KEEP = 2
"""The version in use and the one before: an engine that restarts midway finds either."""

MAX_HEADER = 100_000_000
"""The format's own limit, bytes."""

WEIGHTS_FILE = "model.safetensors"

Source = Callable[[WeightsManifest, int], AsyncIterator[bytes]]
"""Streams a version's bytes from an offset on."""


class WeightFolder:
    """Where downloaded versions lie, and over which link they come in."""

    def __init__(self, folder: Path, cap: LinkCap) -> None:
        self._folder = folder
        self._cap = cap
        folder.mkdir(parents=True, exist_ok=True)

    def directory(self, manifest: WeightsManifest) -> Path:
        """Return the directory of a version, there or not."""
        return self._folder / f"{manifest.epoch}-{manifest.version}-{manifest.sha256[:12]}"

    async def fetch(self, manifest: WeightsManifest, source: Source) -> Path:
        """Return a directory with the verified `model.safetensors` of a version, downloading what is missing.

        Raises EngineError when the bytes are not those of the manifest, and whatever the source raises.
        """
        directory = self.directory(manifest)
        if await asyncio.to_thread((directory / WEIGHTS_FILE).exists):
            return directory
        part = await asyncio.to_thread(_Part, directory.with_suffix(".part"))
        try:
            if part.size < manifest.size:
                await asyncio.sleep(self._cap.latency_s)
                async for piece in source(manifest, part.size):
                    await self._cap.bucket.take(len(piece))
                    part.append(piece)
        finally:
            part.close()
        part.finish(manifest, directory)
        return directory

    def prune(self, newest: WeightsManifest) -> None:
        """Delete all but the newest KEEP versions, and parts of downloads that were overtaken."""
        for part in self._folder.glob("*.part"):
            if part.stem != self.directory(newest).name:
                part.unlink()
        directories = sorted((path for path in self._folder.iterdir() if path.is_dir()), key=_newest_first)
        for directory in directories[KEEP:]:
            shutil.rmtree(directory)


class _Part:
    """A download so far: the file, and the running hash of all its bytes, those of earlier tries included."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest = hashlib.sha256()
        self.size = 0
        self._file = path.open("a+b")
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
        if config := _config_of(self._path):
            (directory / "config.json").write_text(config)
        self._path.rename(directory / WEIGHTS_FILE)

    def _count(self, piece: bytes) -> None:
        self._digest.update(piece)
        self.size += len(piece)


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
