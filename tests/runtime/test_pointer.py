from pathlib import Path

import pytest

from hexcloud.domain.errors import EngineError
from hexcloud.domain.fleet import RunId
from hexcloud.domain.messages import POINTER_FILE
from hexcloud.domain.pointer import sign_pointer
from hexcloud.runtime.pointer import fetch_pointer, read_pointer, write_pointer
from tests.node.switched_bucket import SwitchedBucket

RUN = RunId("run")
POINTER = sign_pointer(RUN, "http://127.0.0.1:1234", 0, "secret")


def test_a_pointer_written_is_the_pointer_read(tmp_path: Path) -> None:
    write_pointer(tmp_path, POINTER)
    assert read_pointer(tmp_path, RUN, "secret") == POINTER


def test_a_new_pointer_replaces_the_old_one_and_leaves_nothing_else(tmp_path: Path) -> None:
    write_pointer(tmp_path, POINTER)
    moved = sign_pointer(RUN, "http://127.0.0.1:9", 1, "secret")
    write_pointer(tmp_path, moved)
    assert read_pointer(tmp_path, RUN, "secret") == moved
    assert [path.name for path in tmp_path.iterdir()] == [POINTER_FILE]


def test_a_pointer_of_another_secret_is_not_followed(tmp_path: Path) -> None:
    write_pointer(tmp_path, POINTER)
    with pytest.raises(EngineError, match="not signed"):
        read_pointer(tmp_path, RUN, "other")


def test_a_pointer_of_another_run_is_not_followed(tmp_path: Path) -> None:
    write_pointer(tmp_path, sign_pointer(RunId("other"), "http://127.0.0.1:1234", 0, "secret"))
    with pytest.raises(EngineError, match="not signed for run run"):
        read_pointer(tmp_path, RUN, "secret")


def test_a_pointer_changed_by_somebody_is_not_followed(tmp_path: Path) -> None:
    write_pointer(tmp_path, POINTER.model_copy(update={"url": "http://evil:1"}))
    with pytest.raises(EngineError, match="not signed"):
        read_pointer(tmp_path, RUN, "secret")


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff"], ids=["missing", "empty", "half", "binary"])
def test_no_pointer_yet_is_an_engine_error(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / POINTER_FILE).write_bytes(content)
    with pytest.raises(EngineError, match="no pointer"):
        read_pointer(tmp_path, RUN, "secret")


def test_the_pointer_in_the_runs_store_is_verified_like_the_file(tmp_path: Path) -> None:
    bucket = SwitchedBucket(tmp_path / "store")
    with pytest.raises(EngineError, match="no pointer to the coordinator in the run's store"):
        fetch_pointer(bucket, RUN, "secret")
    bucket.put(POINTER_FILE, POINTER.model_dump_json().encode())
    assert fetch_pointer(bucket, RUN, "secret") == POINTER
    with pytest.raises(EngineError, match="not signed"):
        fetch_pointer(bucket, RUN, "guess")
    bucket.is_away = True
    with pytest.raises(EngineError, match="the store is away"):
        fetch_pointer(bucket, RUN, "secret")
