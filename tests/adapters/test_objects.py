"""The same laws on a folder and on S3 over HTTP (moto)."""

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hexcloud.adapters.objects import PART, Bucket
from hexcloud.domain.errors import ConfigError, StoreError

KEY = "wJalrXUtnFEMI-made-up"


@pytest.fixture(params=["file", "s3"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Bucket:
    if request.param == "file":
        return Bucket(f"file://{tmp_path}/store")
    return request.getfixturevalue("s3_bucket")("runs")("main-1")  # type: ignore[no-any-return]


@pytest.fixture
def s3_bucket(moto: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Callable[[str], Bucket]]:
    """Make a bucket on the moto server; open a prefix of it."""
    import boto3

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("AWS_REGION", "us-east-1")

    def make(name: str) -> Callable[[str], Bucket]:
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket=name)
        client.close()
        return lambda prefix: Bucket(f"s3://{name}/{prefix}/")

    return make


def test_what_was_put_last_is_what_is_read(bucket: Bucket) -> None:
    assert bucket.get("coordinator.json") is None
    bucket.put("coordinator.json", b"first")
    bucket.put("coordinator.json", b"second")
    assert bucket.get("coordinator.json") == b"second"


def test_of_several_that_create_an_object_at_once_one_gets_it(bucket: Bucket) -> None:
    with ThreadPoolExecutor(4) as threads:
        got = list(threads.map(lambda number: bucket.create("heads/0", str(number).encode()), range(4)))
    assert sum(got) == 1 and bucket.get("heads/0") == str(got.index(True)).encode()


def test_a_store_that_does_all_we_need_is_as_it_was_afterwards(bucket: Bucket) -> None:
    bucket.prove("preflight/1")
    assert bucket.list("preflight") == ()


def test_names_are_listed_by_folder_and_sorted(bucket: Bucket) -> None:
    for name in ("b/2", "b/1/deep", "bb/3", "c"):
        bucket.put(name, b"")
    assert bucket.list("b") == ("b/1/deep", "b/2")
    assert bucket.list("nothing") == ()


def test_files_of_many_parts_come_back_to_the_byte(bucket: Bucket, tmp_path: Path) -> None:
    content = os.urandom(1024) * (PART // 1024) + b"the last part is short"
    (tmp_path / "up").write_bytes(content)
    bucket.upload("checkpoints/0-20/model", str(tmp_path / "up"))
    bucket.download("checkpoints/0-20/model", str(tmp_path / "down"))
    assert (tmp_path / "down").read_bytes() == content


def test_an_empty_file_is_a_file(bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "up").touch()
    bucket.upload("empty", str(tmp_path / "up"))
    bucket.download("empty", str(tmp_path / "down"))
    assert (tmp_path / "down").read_bytes() == b""


def test_removing_twice_is_fine(bucket: Bucket) -> None:
    bucket.put("a", b"1")
    bucket.delete(("a", "b"))
    bucket.delete(("a",))
    assert bucket.get("a") is None


def test_what_is_not_there_cannot_be_downloaded(bucket: Bucket, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot read gone: there is no such object"):
        bucket.download("gone", str(tmp_path / "down"))


def test_a_file_that_is_not_there_cannot_be_uploaded(bucket: Bucket, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot write x"):
        bucket.upload("x", str(tmp_path / "gone"))


@pytest.mark.parametrize("call", ["get", "list", "put", "create", "prove"])
def test_a_bucket_that_does_not_exist_is_an_error_and_not_an_empty_one(
    s3_bucket: Callable[[str], object], call: str
) -> None:
    nowhere = Bucket("s3://never-made/main-1")
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: nowhere.get("coordinator.json"),
        "list": lambda: nowhere.list("checkpoints"),
        "put": lambda: nowhere.put("x", b""),
        "create": lambda: nowhere.create("x", b""),
        "prove": lambda: nowhere.prove("preflight/1"),
    }
    with pytest.raises(StoreError, match=r"s3://never-made/main-1: .*no such bucket; make it"):
        calls[call]()


def test_a_store_that_is_away_is_said_in_one_line_without_any_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{KEY}.invalid:1",
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": KEY,
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreError) as caught:
        Bucket("s3://runs/main-1").get("x")
    said = str(caught.value)
    assert said.startswith("s3://runs/main-1: cannot read x: ")
    assert KEY not in said and "\n" not in said
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_denied_access_says_what_the_keys_must_do(
    s3_bucket: Callable[[str], Callable[[str], Bucket]], moto: Any
) -> None:
    bucket = s3_bucket("closed")("main-1")
    denied = "<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
    moto.tell(faults=[{"service": "s3", "do": "body", "status": 403, "body": denied}])
    with pytest.raises(StoreError, match=r"access is denied \(403 AccessDenied\); the keys must be allowed to read"):
        bucket.put("x", b"")


def test_a_server_error_that_passes_is_retried(s3_bucket: Callable[[str], Callable[[str], Bucket]], moto: Any) -> None:
    bucket = s3_bucket("shaky")("main-1")
    moto.tell(faults=[{"service": "s3", "do": "body", "status": 503, "body": "SlowDown", "times": 2}])
    bucket.put("x", b"1")
    assert bucket.get("x") == b"1"


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/x",
        "runs",
        "",
        "s3:///x",
        "s3://",
        "file://host/x",
        "file://x",
        "s3://key:secret@bucket/x",
        "s3://b/x?token=quiet",
    ],
)
def test_what_is_no_store_is_refused_without_repeating_what_may_be_secret(url: str) -> None:
    with pytest.raises(ConfigError, match="store: ") as caught:
        Bucket(url)
    assert "secret" not in str(caught.value) and "quiet" not in str(caught.value)


@pytest.mark.parametrize("url", ["s3://[bad/x", "s3://bad]/x", "s3://[bad]/x", "runs", "bucket/prefix", "ftp://host/x"])
def test_what_is_no_store_is_repeated_as_it_was_typed(url: str) -> None:
    with pytest.raises(ConfigError, match="a store is s3://BUCKET/PREFIX") as caught:
        Bucket(url)
    assert str(caught.value).startswith(f"store: {url!r}: ")


@pytest.mark.parametrize(("url", "said"), [("s3://me:secret@[bad/x", "s3://..."), ("me:secret@bucket", "...")])
def test_a_password_in_what_is_no_store_is_left_out(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match="a store is s3://BUCKET/PREFIX") as caught:
        Bucket(url)
    assert str(caught.value).startswith(f"store: {said}: ")


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be opened"):
        Bucket(f"file://{tmp_path}/file/store")


def test_a_broken_key_of_google_is_said_without_repeating_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "GOOGLE_SERVICE_ACCOUNT_KEY", '{"client_email": "a", "private_key": "hush", "private_key_id": "b"}'
    )
    with pytest.raises(ConfigError, match="gs://runs/main-1 cannot be opened") as caught:
        Bucket("gs://runs/main-1")
    assert "hush" not in str(caught.value)


def test_a_google_store_that_is_away_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    key = {"gcs_base_url": "http://127.0.0.1:1", "disable_oauth": True, "client_email": "", "private_key": ""}
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(key | {"private_key_id": ""}))
    with pytest.raises(StoreError, match="gs://runs/main-1: cannot read x: ") as caught:
        Bucket("gs://runs/main-1").get("x")
    assert "\n" not in str(caught.value)
