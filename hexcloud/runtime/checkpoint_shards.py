"""Shards of a checkpoint as DCP writes and reads them: hashed while they are written, however slow the storage is."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from hexcloud.runtime.trainer_patience import together
from hexcloud.runtime.trainer_ranks import Ranks


class ShardWriter(FileSystemWriter):
    """Writes this rank's shards; `digests` then has the sha256 of every file that it wrote, by name."""

    def __init__(self, folder: Path, ranks: Ranks) -> None:
        super().__init__(folder)
        self._ranks = ranks
        self.digests: dict[str, str] = {}
        self.fs = _HashedFiles(self.digests)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's share; returns when every rank has."""
        return together(self._ranks, partial(super().write_data, plan, planner))


class ShardReader(FileSystemReader):
    """Reads what this rank needs."""

    def __init__(self, folder: Path, ranks: Ranks) -> None:
        super().__init__(folder)
        self._ranks = ranks

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read this rank's share; returns when every rank has."""
        return together(self._ranks, partial(super().read_data, plan, planner))


class _HashedFiles(FileSystem):
    """DCP's files. Content and digest come from the same bytes in memory: nothing is read back."""

    def __init__(self, digests: dict[str, str]) -> None:
        self._digests = digests

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        with Path(path).open(mode) as file:
            stream = _HashedStream(file)
            yield stream
        self._digests[Path(path).name] = stream.digest

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        super().rename(path, new_path)
        self._digests[Path(new_path).name] = self._digests.pop(Path(path).name)


class _HashedStream:
    """A file that is written from its beginning to its end: as it cannot seek, its digest is that of its content."""

    def __init__(self, file: IO[Any]) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        self.tell, self.flush, self.fileno, self.close = file.tell, file.flush, file.fileno, file.close

    @property
    def digest(self) -> str:
        """sha256 of what was written."""
        return self._sha256.hexdigest()

    def write(self, content: bytes | memoryview) -> int:
        self._sha256.update(content)
        return self._file.write(content)
