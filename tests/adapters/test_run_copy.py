from pathlib import Path

import pytest

from hexcloud.adapters.run_copy import RunCopy
from hexcloud.adapters.stored_folder import upload_folder
from hexcloud.domain.errors import StoreError
from hexcloud.domain.stored import metrics_object
from tests.node.switched_bucket import SwitchedBucket


@pytest.fixture
def bucket(tmp_path: Path) -> SwitchedBucket:
    return SwitchedBucket(tmp_path / "store")


@pytest.fixture
def copy(bucket: SwitchedBucket, tmp_path: Path) -> RunCopy:
    (tmp_path / "run").mkdir()
    return RunCopy(bucket, tmp_path / "run", "secret")


def test_the_steps_of_all_heads_come_in_order(bucket: SwitchedBucket, copy: RunCopy, tmp_path: Path) -> None:
    bucket.put(metrics_object(4), b"third\n")
    bucket.put(metrics_object(0), b"first\nsecond\n")
    copy.bring_metrics()
    copy.bring_metrics()
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == "first\nsecond\nthird\n"


def test_what_was_brought_stays_while_the_store_is_away(bucket: SwitchedBucket, copy: RunCopy, tmp_path: Path) -> None:
    bucket.put(metrics_object(0), b"first\n")
    copy.bring_metrics()
    bucket.is_away = True
    with pytest.raises(StoreError):
        copy.bring_metrics()
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == "first\n"


def test_the_result_comes_once_it_is_whole(bucket: SwitchedBucket, copy: RunCopy, tmp_path: Path) -> None:
    assert not copy.bring_output(tmp_path / "output")
    made = tmp_path / "made"
    made.mkdir()
    (made / "model.safetensors").write_bytes(b"weights")
    upload_folder(bucket, "output", made, "secret")
    assert copy.bring_output(tmp_path / "output")
    assert (tmp_path / "output" / "model.safetensors").read_bytes() == b"weights"


def test_a_folder_that_cannot_be_written_is_said(bucket: SwitchedBucket, copy: RunCopy, tmp_path: Path) -> None:
    upload_folder(bucket, "output", tmp_path / "run", "secret")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="file"):
        copy.bring_output(tmp_path / "file")
