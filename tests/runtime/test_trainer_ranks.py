from pathlib import Path

import torch

from hexcloud.domain.formation import Formation
from hexcloud.domain.training import LayoutKind, TrainingSpec
from hexcloud.runtime.trainer_ranks import Ranks, join, leave
from tests.runtime.training import ALONE, act


def _speak(ranks: Ranks) -> None:
    message = b"to all" if ranks.rank == 0 else None
    assert ranks.tell(message) == b"to all"
    assert ranks.tell(b"" if ranks.rank == 0 else None) == b""
    assert ranks.sum(torch.tensor([ranks.rank, 1.0])).tolist() == [1.0, 2.0]
    assert ranks.mesh is not None and ranks.mesh.size() == 2


def test_rank_0_is_heard_by_all_and_sums_are_of_all(tmp_path: Path) -> None:
    act(_speak, Formation(LayoutKind.FSDP, 2, 1), TrainingSpec(), tmp_path)


def test_a_rank_alone_has_no_group() -> None:
    ranks = join(None, 0, ALONE, TrainingSpec())
    assert ranks.mesh is None and not torch.distributed.is_initialized()
    assert ranks.tell(b"x") == b"x"
    assert ranks.sum(torch.ones(1)).tolist() == [1.0]
    leave()


def test_ranks_of_a_machine_share_their_samples_only_under_tensor_parallelism() -> None:
    places = {kind: [(Ranks(rank, Formation(kind, 2, 3)).data_rank) for rank in range(6)] for kind in LayoutKind}
    assert places[LayoutKind.FSDP] == places[LayoutKind.HSDP] == [0, 1, 2, 3, 4, 5]
    assert places[LayoutKind.TP] == [0, 0, 0, 1, 1, 1]
    assert Ranks(0, Formation(LayoutKind.TP, 2, 3)).data_ranks == 2
