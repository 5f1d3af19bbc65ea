from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from hexcloud.domain.messages import StepReport
from hexcloud.runtime.trainer_board import Board


def test_scalars_can_be_read_back_at_their_version(tmp_path: Path) -> None:
    board = Board(tmp_path)
    board.accuracy(0.25, 0)
    for version in (1, 2):
        board.step(StepReport(epoch=0, version=version, path="", sha256="", size=0, reward=version / 4))
    board.close()
    read = EventAccumulator(str(tmp_path / "tensorboard"))
    read.Reload()
    assert [(row.step, row.value) for row in read.Scalars("train/reward")] == [(1, 0.25), (2, 0.5)]
    assert [(row.step, row.value) for row in read.Scalars("eval/accuracy")] == [(0, 0.25)]


def test_a_board_that_was_never_used_leaves_nothing(tmp_path: Path) -> None:
    Board(tmp_path).close()
    assert list(tmp_path.iterdir()) == []
