from pathlib import Path

import pytest

from hexcloud.adapters.metrics import read_steps
from hexcloud.domain.errors import StoreError
from hexcloud.domain.metrics import StepRow

ROW = StepRow(
    epoch=0,
    version=1,
    wall_s=5.0,
    samples=256,
    dropped_samples=0,
    reward=0.5,
    loss=0.0,
    grad_norm=1.0,
    clip_fraction=0.0,
    prox_kl=0.0,
    busy_s=0.5,
    wait_s=0.0,
    staleness={0: 200, 1: 56},
    tokens=1000,
)


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text(ROW.model_dump_json() + "\n" + ROW.model_dump_json() + "\n")
    assert read_steps(file) == (ROW, ROW)


def test_a_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text(ROW.model_dump_json() + "\n" + ROW.model_dump_json()[:40])
    assert read_steps(file) == (ROW,)


def test_there_are_no_rows_before_the_first_step(tmp_path: Path) -> None:
    assert read_steps(tmp_path / "metrics.jsonl") == ()


@pytest.mark.parametrize("content", [b"{}\n", b"\xff\n"])
def test_a_line_that_is_no_step_is_a_store_error(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(content)
    with pytest.raises(StoreError, match=r"metrics\.jsonl"):
        read_steps(file)
