"""The same laws on a bucket of S3 over HTTP (moto) and on what fsspec opens."""

import os
import urllib.request
from pathlib import Path

import pytest

from hexcloud.adapters.objects import Bucket
from hexcloud.adapters.weight_store import FileSystem, open_weight_store, read_place
from hexcloud.domain.errors import ConfigError, StoreError

REGION = "aws/us-west-2"
Store = Bucket | FileSystem


@pytest.fixture(params=["s3", "file", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param != "s3":
        return open_weight_store(f"{request.param}://{tmp_path}/region/run-1", REGION)
    import boto3

    request.getfixturevalue("moto")
    client = boto3.client("s3", region_name="us-west-2")
    client.create_bucket(Bucket=tmp_path.name, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    client.close()
    return open_weight_store(f"s3://{tmp_path.name}/run-1", REGION)


def test_what_was_uploaded_is_read_at_its_place_from_any_byte_on(store: Store, tmp_path: Path) -> None:
    content = os.urandom(5 << 20)
    (tmp_path / "up").write_bytes(content)
    store.upload("weights/1", str(tmp_path / "up"))
    url = store.place("weights/1", 60)
    if isinstance(store, FileSystem):
        assert b"".join(read_place(url, 3_000_000)) == content[3_000_000:]
        return
    asked = urllib.request.Request(url, headers={"Range": "bytes=3000000-"})
    with urllib.request.urlopen(asked) as answer:
        assert (answer.status, answer.read()) == (206, content[3_000_000:])


def test_objects_are_listed_removed_and_absent_ones_are_fine(store: Store, tmp_path: Path) -> None:
    assert store.list("weights") == ()
    (tmp_path / "up").write_bytes(b"weights")
    for name in ("weights/2", "weights/1", "other/3"):
        store.upload(name, str(tmp_path / "up"))
    assert store.list("weights") == ("weights/1", "weights/2")
    store.delete(("weights/1", "weights/2", "weights/gone"))
    assert store.list("weights") == () and store.list("other") == ("other/3",)


def test_a_store_that_does_all_we_need_is_as_it_was_afterwards(store: Store) -> None:
    store.prove("weights/1")
    assert store.list("weights") == ()


def test_a_signed_place_needs_no_keys_and_shows_none(store: Store) -> None:
    url = store.place("weights/1", 60)
    if isinstance(store, Bucket):
        assert "X-Amz-Expires=60" in url and "us-west-2" in url and os.environ["AWS_SECRET_ACCESS_KEY"] not in url
    else:
        assert url.endswith("/region/run-1/weights/1")


def test_what_fails_is_said_with_the_stores_url(tmp_path: Path) -> None:
    (tmp_path / "in-the-way").touch()
    store = open_weight_store(f"file://{tmp_path}/in-the-way", REGION)
    for failing in (
        lambda: store.upload("weights/1", str(tmp_path / "in-the-way")),
        lambda: store.prove("weights/1"),
        lambda: list(read_place(store.place("weights/1", 60), 0)),
    ):
        with pytest.raises(StoreError, match="in-the-way"):
            failing()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("bucket/prefix", "a store is a URL"),
        ("memory://weights", "a store is a URL"),
        ("s3://key:hunter2@bucket/weights", "a store is a URL"),
        ("sftp://me:hunter2@host/weights", "a store is a URL"),
        ("https://host/weights?token=hunter2", "a store is a URL"),
        ("http://[hunter2", "cannot be read"),
        ("s3:///weights", "names no bucket"),
        ("nonsense://weights", "nonsense"),
        ("abfs://container@account/weights", "adlfs"),
    ],
)
def test_what_is_no_store_is_refused_and_no_secret_is_repeated(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        open_weight_store(url, REGION)
    assert "hunter2" not in str(refused.value)
