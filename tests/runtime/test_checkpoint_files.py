import os
from functools import partial
from pathlib import Path
from random import Random

from hexcloud.domain.formation import Formation
from hexcloud.domain.training import LayoutKind, TrainingSpec
from hexcloud.runtime.checkpoint_files import brought, first_of_machine, gathered
from hexcloud.runtime.trainer_ranks import Ranks
from tests.runtime.training import act

LARGE = Random(0).randbytes(17 << 20)
"""More than a piece."""


def _apart(ranks: Ranks, folder: Path) -> None:
    """Each machine has a folder of its own, under a name that is the same on all of them."""
    own = folder / str(ranks.rank // ranks.formation.ranks)
    own.mkdir(exist_ok=True)
    os.chdir(own)
    mine = f"{ranks.rank}.bin"
    with gathered(Path("draft/shards"), ranks) as gathering:
        (gathering.folder / mine).write_bytes(LARGE if ranks.rank else b"")
        gathering.digests = {mine: f"digest of {mine}"}
    names = [f"{rank}.bin" for rank in range(ranks.size)]
    if ranks.rank == 0:
        assert [Path("draft/shards", name).read_bytes() for name in names] == [b""] + [LARGE] * (ranks.size - 1)
        assert gathering.digests == {name: f"digest of {name}" for name in names}
    assert first_of_machine(ranks.rank, ranks) == 0 or not Path("draft").exists()
    with brought(Path("draft"), ranks) as there:
        (folder / f"brought-to-{ranks.rank}").write_text(str(there.resolve()))
        assert (there / "shards" / mine).read_bytes() == (LARGE if ranks.rank else b"")
    if ranks.rank == first_of_machine(ranks.rank, ranks):
        assert there.exists() == (ranks.rank == 0), "copies are gone"


def test_machines_without_a_common_folder_send_each_other_files(tmp_path: Path) -> None:
    act(partial(_apart, folder=tmp_path), Formation(LayoutKind.FSDP, 3, 1), TrainingSpec(), tmp_path)


def test_a_machine_is_sent_one_copy_for_all_its_ranks(tmp_path: Path) -> None:
    act(partial(_apart, folder=tmp_path), Formation(LayoutKind.FSDP, 2, 2), TrainingSpec(), tmp_path)
    places = [(tmp_path / f"brought-to-{rank}").read_text() for rank in range(4)]
    assert places[:2] == [str(tmp_path / "0" / "draft")] * 2
    assert places[2] == places[3] != places[0]


def _together(ranks: Ranks, folder: Path) -> None:
    with gathered(folder / "draft", ranks) as gathering:
        assert gathering.folder == folder / "draft"
        (gathering.folder / str(ranks.rank)).write_text("x")
    with brought(folder / "draft", ranks) as there:
        assert there == folder / "draft"


def test_a_common_folder_is_written_and_read_in_place(tmp_path: Path) -> None:
    act(partial(_together, folder=tmp_path), Formation(LayoutKind.FSDP, 2, 1), TrainingSpec(), tmp_path)
