import time
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed import FileStore  # type: ignore[attr-defined]

from hexcloud.domain.errors import EngineError
from hexcloud.domain.formation import Formation
from hexcloud.domain.training import LayoutKind, TrainingSpec
from hexcloud.runtime import trainer_patience
from hexcloud.runtime.trainer_patience import nothing, together
from hexcloud.runtime.trainer_ranks import Ranks, leave
from tests.runtime.training import ALONE, act

TWO = Formation(LayoutKind.FSDP, 2, 1)
TIMEOUT_S, WORK_S = 5.0, 11.0
"""What a group here waits for a rank, and how long one is at work."""


def hasty(ranks: Ranks, folder: Path) -> Ranks:
    """Form the group anew with a short timeout, and let it meet more often than that."""
    leave()
    store = FileStore(str(folder / "hasty"), ranks.size)
    dist.init_process_group(
        "gloo", store=store, rank=ranks.rank, world_size=ranks.size, timeout=timedelta(seconds=TIMEOUT_S)
    )
    trainer_patience.MEET_S = 0.5
    return Ranks(ranks.rank, ranks.formation)


def _slow(ranks: Ranks, folder: Path) -> None:
    ranks = hasty(ranks, folder)
    begun_s = time.monotonic()
    assert together(ranks, partial(time.sleep, WORK_S) if ranks.rank == 0 else nothing) is None
    assert ranks.rank or time.monotonic() - begun_s >= WORK_S > 2 * TIMEOUT_S
    assert ranks.sum(torch.ones(1)).tolist() == [2.0], "and the group goes on"


def test_work_that_takes_longer_than_the_groups_timeout_ends_no_rank(tmp_path: Path) -> None:
    act(partial(_slow, folder=tmp_path), TWO, TrainingSpec(), tmp_path)


def _without_patience(ranks: Ranks, folder: Path) -> None:
    ranks = hasty(ranks, folder)
    if ranks.rank == 0:
        time.sleep(WORK_S)
        return
    with pytest.raises(RuntimeError, match=r"(?i)timed out|timeout"):
        ranks.sum(torch.ones(1))


def test_without_it_a_rank_gives_up(tmp_path: Path) -> None:
    act(partial(_without_patience, folder=tmp_path), TWO, TrainingSpec(), tmp_path)


def _broken(ranks: Ranks) -> None:
    def fail() -> None:
        raise OSError("no space left")

    begun_s = time.monotonic()
    wanted = pytest.raises(OSError, match="no space") if ranks.rank else pytest.raises(EngineError, match="own log")
    with wanted:
        together(ranks, fail if ranks.rank else partial(time.sleep, 60))
    assert time.monotonic() - begun_s < 30, "nobody waits for what is of no use any more"


def test_who_fails_says_why_and_the_others_that_one_did(tmp_path: Path) -> None:
    act(_broken, TWO, TrainingSpec(), tmp_path)


def test_a_rank_alone_just_works() -> None:
    assert together(Ranks(0, ALONE), lambda: 7) == 7
