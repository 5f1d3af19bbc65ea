"""A store that can be away: the real one on a folder, with a switch."""

from pathlib import Path

from hexcloud.adapters.objects import Bucket
from hexcloud.domain.errors import StoreError


class SwitchedBucket(Bucket):
    """Fails every call while `is_away`, and the calls after the next `writes_left` writes for good."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"file://{folder}")
        self.is_away = False
        self.writes_left: int | None = None

    def put(self, name: str, content: bytes) -> None:
        self._count()
        super().put(name, content)

    def create(self, name: str, content: bytes) -> bool:
        self._count()
        return super().create(name, content)

    def upload(self, name: str, path: str) -> None:
        self._count()
        super().upload(name, path)

    def get(self, name: str) -> bytes | None:
        self._require()
        return super().get(name)

    def download(self, name: str, path: str) -> None:
        self._require()
        super().download(name, path)

    def list(self, prefix: str) -> tuple[str, ...]:
        self._require()
        return super().list(prefix)

    def delete(self, names: tuple[str, ...]) -> None:
        self._require()
        super().delete(names)

    def _require(self) -> None:
        if self.is_away:
            raise StoreError("the store is away")

    def _count(self) -> None:
        self._require()
        if self.writes_left is not None:
            if self.writes_left == 0:
                raise StoreError("the head was killed here")
            self.writes_left -= 1
