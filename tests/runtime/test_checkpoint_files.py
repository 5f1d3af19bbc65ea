import os
from functools import partial
from pathlib import Path
from random import Random

from hexcloud.domain.formation import Formation
from hexcloud.domain.training import LayoutKind, TrainingSpec
from hexcloud.runtime.checkpoint_files import brought, gathered
from hexcloud.runtime.trainer_ranks import Ranks
from tests.runtime.training import act

LARGE = Random(0).randbytes(17 << 20)
"""More than a piece."""


def _apart(ranks: Ranks, folder: Path) -> None:
    """Each rank has a folder of its own, under a name that is the same on all of them."""
    own = folder / str(ranks.rank)
    own.mkdir(exist_ok=True)
    os.chdir(own)
    with gathered(Path("draft/shards"), ranks) as place:
        (place / f"{ranks.rank}.bin").write_bytes(LARGE if ranks.rank else b"")
    if ranks.rank == 0:
        assert Path("draft/shards/1.bin").read_bytes() == LARGE
        assert Path("draft/shards/0.bin").read_bytes() == b""
    assert ranks.rank == 0 or not Path("draft").exists()
    with brought(Path("draft"), ranks) as there:
        assert (there / "shards" / "1.bin").read_bytes() == LARGE
    assert there.exists() == (ranks.rank == 0)


def test_machines_without_a_common_folder_send_each_other_files(tmp_path: Path) -> None:
    act(partial(_apart, folder=tmp_path), Formation(LayoutKind.FSDP, 2, 1), TrainingSpec(), tmp_path)


def _together(ranks: Ranks, folder: Path) -> None:
    with gathered(folder / "draft", ranks) as place:
        assert place == folder / "draft"
        (place / str(ranks.rank)).write_text("x")
    with brought(folder / "draft", ranks) as there:
        assert there == folder / "draft"


def test_a_common_folder_is_written_and_read_in_place(tmp_path: Path) -> None:
    act(partial(_together, folder=tmp_path), Formation(LayoutKind.FSDP, 2, 1), TrainingSpec(), tmp_path)
