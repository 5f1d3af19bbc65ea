"""Bucket: the run's store in an object store (s3://, gs://) or a folder (file://). Every object is whole or absent.

Keys come from the environment (AWS_ACCESS_KEY_ID, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL,
GOOGLE_SERVICE_ACCOUNT_KEY, GOOGLE_APPLICATION_CREDENTIALS) or from the machine's own role; for S3 also from where the
AWS SDK finds them, when it is installed. They never show in a message.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import obstore
from obstore import exceptions as failures
from obstore.store import GCSStore, LocalStore, ObjectStore, S3Store, from_url

from hexcloud.domain.errors import ConfigError, StoreError
from hexcloud.domain.stored import DamagedError

SCHEMES = ("s3", "gs", "file")
CALL_S = 60
"""One request, whatever it moves; larger objects travel in several."""
CONNECT_S = 4
RETRY_S = 15
"""A call that still fails after this is given up: who called tries again later."""
PART = 32 * 1024 * 1024
"""Bytes per request of a large object."""
MAX_PARTS = 9_000
"""S3 takes 10,000."""
WAYS_AT_ONCE = 4
_KEY_NAMES = re.compile(r"(KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL)", re.IGNORECASE)
_SCHEME = re.compile(r"\w+://")
_MAYBE_SECRET = re.compile(r"[@?#]")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d{3})")


class TakenError(StoreError):
    """There is an object of the name."""


class Bucket:
    """Implements ports.Objects. May be used from several threads."""

    def __init__(self, url: str, region: str = "") -> None:
        """Open a store; nothing is asked of it yet. Raises ConfigError for a URL that is none, or without its keys.

        `region` is the bucket's (S3); empty: that of the environment.
        """
        self.url = url.rstrip("/")
        self._store = _open(self.url, region)

    def put(self, name: str, content: bytes) -> None:
        """Write an object, in the place of any before. Raises StoreError."""
        with self._saying("write", name):
            obstore.put(self._store, name, content, use_multipart=False)

    def create(self, name: str, content: bytes) -> bool:
        """Write an object where there is none; return whether it was this call. Raises StoreError.

        False also for a call whose answer was lost on its way back: who asks again must take another name.
        """
        try:
            with self._saying("write", name):
                obstore.put(self._store, name, content, mode="create", use_multipart=False)
        except TakenError:
            return False
        return True

    def prove(self, name: str) -> None:
        """Write, read, list and remove an object. Raises StoreError for the first that is refused."""
        proof = name.encode()
        self.put(name, proof)
        if self.get(name) != proof or name not in self.list(name.rpartition("/")[0]):
            raise StoreError(f"{self.url}: {name} was written and does not read back")
        self.delete((name,))

    def upload(self, name: str, path: str) -> None:
        """Write a file's content as an object. Raises StoreError, also when the file cannot be read."""
        with self._saying("write", name):
            part = max(PART, -(-Path(path).stat().st_size // MAX_PARTS))
            obstore.put(self._store, name, Path(path), chunk_size=part, max_concurrency=WAYS_AT_ONCE)

    def get(self, name: str) -> bytes | None:
        """Return an object, None when there is none of the name. Raises StoreError."""
        try:
            with self._saying("read", name):
                return bytes(obstore.get(self._store, name).bytes())
        except DamagedError:
            return None

    def download(self, name: str, path: str) -> None:
        """Write an object's content to a file, part by part. Raises StoreError, DamagedError for an absent object."""
        with self._saying("read", name), Path(path).open("wb") as file:
            size = obstore.head(self._store, name)["size"]
            for start in range(0, size, PART):
                file.write(obstore.get_range(self._store, name, start=start, length=min(PART, size - start)))

    def place(self, name: str, for_s: int) -> str:
        """Return a URL by which whoever has it can read an object for so long, without keys; of a folder its own.

        Raises StoreError.
        """
        if not isinstance(self._store, S3Store | GCSStore):
            return f"{self.url}/{name}"
        with self._saying("sign", name):
            return obstore.sign(self._store, "GET", name, timedelta(seconds=for_s))

    def list(self, prefix: str) -> tuple[str, ...]:
        """Return the names that begin with `prefix/`, sorted. Raises StoreError."""
        with self._saying("list", prefix):
            pages = obstore.list(self._store, prefix)
            return tuple(sorted(found["path"] for page in pages for found in page))

    def delete(self, names: tuple[str, ...]) -> None:
        """Remove objects; absent ones are fine. Raises StoreError."""
        for name in names:
            try:
                with self._saying("remove", name):
                    obstore.delete(self._store, name)
            except DamagedError:
                continue

    @contextmanager
    def _saying(self, what: str, name: str) -> Iterator[None]:
        try:
            yield
        except (failures.BaseError, OSError, ValueError) as error:
            raise _said(error, f"{self.url}: cannot {what} {name}") from None  # the cause quotes headers and answers


def typed(url: str) -> str:
    """Return a URL as it was typed, or at most its scheme where a password, a query or a fragment may be secret."""
    if not _MAYBE_SECRET.search(url):
        return repr(url)
    scheme = _SCHEME.match(url)
    return f"{scheme[0] if scheme else ''}..."


def _open(url: str, region: str) -> ObjectStore:
    no_store = f"store: {typed(url)}: a store is s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or file:///FOLDER"
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigError(no_store) from None  # the cause may quote a password
    if parts.scheme not in SCHEMES or parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError(no_store)
    if parts.scheme == "file":
        return _open_folder(url, parts.netloc, parts.path)
    if not parts.netloc:
        raise ConfigError(f"store: {url} names no bucket")
    try:
        store: ObjectStore = from_url(
            url, client_options=_client_options(), retry_config=_RETRY, **_account(parts.scheme, region)
        )
        return store
    except (failures.BaseError, ValueError) as error:
        raise ConfigError(f"store: {url} cannot be opened: {_plain(error)}") from None


def _open_folder(url: str, host: str, folder: str) -> LocalStore:
    if host or not folder.startswith("/"):
        raise ConfigError(f"store: {url}: a folder is file:///FOLDER, with its whole path")
    try:
        return LocalStore(folder, mkdir=True)
    except (failures.BaseError, OSError, ValueError) as error:
        raise ConfigError(f"store: {url} cannot be opened: {_plain(error)}") from None


_RETRY: Any = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=RETRY_S),
    "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=3), "base": 2},
}


def _account(scheme: str, region: str) -> Any:
    return _sdk_account(scheme) | ({"region": region} if region else {})


def _sdk_account(scheme: str) -> Any:
    """Return S3 keys and region as the AWS SDK finds them, where the environment has no keys and the SDK is here."""
    if scheme != "s3" or os.environ.get("AWS_ACCESS_KEY_ID"):
        return {}
    from hexcloud.adapters.clouds.aws_keys import sdk_account

    account = sdk_account()
    if account is None:
        return {}
    return {"credential_provider": account.keys} | ({"region": account.region} if account.region else {})


def _client_options() -> Any:
    return {"allow_http": _is_http_endpoint(), "timeout": f"{CALL_S}s", "connect_timeout": f"{CONNECT_S}s"}


def _is_http_endpoint() -> bool:
    """A user who names an http endpoint (a store of their own, an emulator) means it."""
    endpoints = [os.environ.get(name, "") for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")]
    endpoints.append(_google_endpoint(os.environ.get("GOOGLE_SERVICE_ACCOUNT_KEY", "")))
    return any(endpoint.startswith("http://") for endpoint in endpoints)


def _google_endpoint(key: str) -> str:
    """Return the endpoint in a service account's key, where the library looks for an emulator's."""
    try:
        said = json.loads(key or "{}")
    except ValueError:
        return ""
    return str(said.get("gcs_base_url", "")) if isinstance(said, dict) else ""


def _said(error: Exception, what: str) -> StoreError:
    """Return the error in one line: what was asked, what came back, what to do."""
    text = str(error)
    code, status = _CODE.search(text), _STATUS.search(text)
    answer = " ".join(found[1] for found in (status, code) if found)
    if code is not None and code[1] == "NoSuchBucket":
        return StoreError(f"{what}: there is no such bucket; make it, or name another one in `store`")
    if isinstance(error, failures.AlreadyExistsError):
        return TakenError(f"{what}: there is one already")
    if isinstance(error, failures.NotFoundError | FileNotFoundError):
        return DamagedError(f"{what}: there is no such object")
    if isinstance(error, failures.PermissionDeniedError | failures.UnauthenticatedError) or answer.startswith("403"):
        why = answer or "no keys"
        return StoreError(f"{what}: access is denied ({why}); the keys must be allowed to read, write, list and delete")
    if answer.startswith("301"):
        return StoreError(f"{what}: the bucket is in another region; name it in AWS_REGION")
    return StoreError(f"{what}: {answer or _plain(error)}")


def _plain(error: Exception) -> str:
    """Return the first line of a message, short and without any key of the environment."""
    line = str(error).partition("\n")[0][:300]
    hidden = (value for name, value in os.environ.items() if _KEY_NAMES.search(name) and len(value) >= 4)
    for value in hidden:
        line = line.replace(value, "***")
    return line
