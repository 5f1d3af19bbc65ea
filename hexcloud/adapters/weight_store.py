"""Stores for weights in a region: a bucket (s3://, gs://), or whatever fsspec opens that can be written.

fsspec's own ways to keys are its file systems' (environment, machine's role, their configuration files); a URL here has
none. A protocol that needs a package says which.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar
from urllib.parse import urlsplit

import fsspec

from hexcloud.adapters.objects import Bucket, typed
from hexcloud.domain.errors import ConfigError, StoreError

BUCKETS = ("s3", "gs")
"""What needs no fsspec: the stores of runs, too, know keys, regions and signed URLs of these."""
HERE_ONLY = ("memory", "data")
"""Of one process."""
PIECE = 4 << 20

Result = TypeVar("Result")


class FileSystem:
    """A folder of one of fsspec's file systems. Implements runtime.coordinator_stores.WeightStore."""

    def __init__(self, url: str) -> None:
        """Open it; nothing is asked of it yet. Raises ConfigError."""
        self._url = url.rstrip("/")
        try:
            self._files, self._root = fsspec.url_to_fs(self._url)
        except (ImportError, ValueError, OSError) as error:
            raise ConfigError(f"{typed(url)} cannot be opened: {_line(error)}") from None

    def upload(self, name: str, path: str) -> None:
        """Write a file's content as an object. Raises StoreError."""

        def put() -> None:
            self._files.makedirs(self._at(name).rpartition("/")[0], exist_ok=True)
            self._files.put_file(path, self._at(name))

        self._saying("write", name, put)

    def place(self, name: str, for_s: int) -> str:
        """Return a signed URL where the file system can sign, else its own. Raises StoreError."""

        def sign() -> str:
            try:
                return str(self._files.sign(self._at(name), expiration=for_s))
            except NotImplementedError:
                return f"{self._url}/{name}"

        return self._saying("sign", name, sign)

    def list(self, prefix: str) -> tuple[str, ...]:
        """Return the names below `prefix/`, sorted. Raises StoreError."""

        def find() -> tuple[str, ...]:
            self._files.invalidate_cache()
            skip = len(self._root.rstrip("/")) + 1
            return tuple(sorted(found[skip:] for found in self._files.find(self._at(prefix))))

        return self._saying("list", prefix, find)

    def delete(self, names: tuple[str, ...]) -> None:
        """Remove objects; absent ones are fine. Raises StoreError."""

        def remove(name: str) -> None:
            try:
                self._files.rm_file(self._at(name))
            except FileNotFoundError:
                return

        for name in names:
            self._saying("remove", name, lambda name=name: remove(name))  # type: ignore[misc]

    def prove(self, name: str) -> None:
        """Write, read, list and remove an object. Raises StoreError for the first that is refused."""
        proof = name.encode()

        def put() -> bytes:
            self._files.makedirs(self._at(name).rpartition("/")[0], exist_ok=True)
            self._files.pipe_file(self._at(name), proof)
            return bytes(self._files.cat_file(self._at(name)))

        if self._saying("write", name, put) != proof or name not in self.list(name.rpartition("/")[0]):
            raise StoreError(f"{self._url}: {name} was written and does not read back")
        self.delete((name,))

    def _at(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _saying(self, what: str, name: str, act: Callable[[], Result]) -> Result:
        try:
            return act()
        except Exception as error:  # noqa: BLE001 - every file system has errors of its own
            raise StoreError(f"{self._url}: cannot {what} {name}: {_line(error)}") from None


def open_weight_store(url: str, region: str) -> Bucket | FileSystem:
    """Open a store of a region, `cloud/region`. Raises ConfigError for a URL that is none, or that has a secret."""
    try:
        parts = urlsplit(url)
        has_secret = bool(parts.password or parts.query or parts.fragment)
    except ValueError:
        raise ConfigError("the URL cannot be read") from None  # the cause may quote a password
    if has_secret or not parts.scheme or parts.scheme in HERE_ONLY:
        raise ConfigError(
            f"{typed(url)}: a store is a URL without secrets that this machine and those of {region} reach: "
            "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, or another one that fsspec opens"
        )
    if parts.scheme in BUCKETS:
        return Bucket(url, region.partition("/")[2] if parts.scheme == "s3" and region.startswith("aws/") else "")
    return FileSystem(url)


def read_place(url: str, offset: int) -> Iterator[bytes]:
    """Yield what an unsigned place leads to, from an offset on. Raises StoreError."""
    try:
        with fsspec.open(url, "rb") as file:
            file.seek(offset)
            while piece := file.read(PIECE):
                yield piece
    except Exception as error:  # noqa: BLE001 - as above
        raise StoreError(f"cannot read {url}: {_line(error)}") from None


def _line(error: Exception) -> str:
    return (str(error).partition("\n")[0] or type(error).__name__)[:300]
