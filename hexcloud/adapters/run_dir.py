"""RunDir: a run's own folder, its secret, and the lock that says which process controls it.

The lock is the kernel's (`flock`): it ends with the process, however that ends, so a killed controller never blocks
its successor.
"""

import fcntl
import os
import secrets
from pathlib import Path
from types import TracebackType

from hexcloud.domain.errors import HexcloudError, StoreError

SECRET_BYTES = 32


class RunIsControlledError(HexcloudError):
    """Another living process controls this run: attach to it instead."""


class RunDir:
    """A folder `{home}/runs/{run_id}` with mode 0700."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_fd: int | None = None

    def create(self) -> None:
        """Make the folder and the run's secret; both survive a second call. Raises StoreError."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._write_secret_once()
        except OSError as error:
            raise StoreError(f"{self.path}: cannot create the run's folder: {error.strerror}") from error

    def secret(self) -> bytes:
        """Return the run's secret: the HMAC key of node tokens and of the coordinator's pointer. Raises StoreError."""
        try:
            return (self.path / "secret").read_bytes()
        except OSError as error:
            raise StoreError(f"{self.path / 'secret'}: the run's secret is gone: {error.strerror}") from error

    def is_controlled(self) -> bool:
        """Does a living process hold this run's lock?"""
        try:
            with self:
                return False
        except RunIsControlledError:
            return True

    def __enter__(self) -> "RunDir":
        """Take the lock. Raises RunIsControlledError when another process has it."""
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise RunIsControlledError(f"run {self.path.name} is controlled by another process; attach to it") from None
        self._lock_fd = fd
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lock back."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def _write_secret_once(self) -> None:
        try:
            fd = os.open(self.path / "secret", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return
        with os.fdopen(fd, "wb") as file:
            file.write(secrets.token_bytes(SECRET_BYTES))
