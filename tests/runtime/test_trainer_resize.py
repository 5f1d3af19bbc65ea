from functools import partial
from pathlib import Path

import pytest
import torch

from hexcloud.domain.formation import Formation
from hexcloud.domain.training import LayoutKind, TrainingSpec
from hexcloud.runtime.reshard import describe
from hexcloud.runtime.trainer_ranks import Ranks
from hexcloud.runtime.trainer_resize import Change, Side, carry_out, take, whole_of
from tests.runtime.training import act, small_model, state_of


def _moves(ranks: Ranks, kinds: tuple[LayoutKind, LayoutKind]) -> None:
    """All ranks hold a state; then the last of them do, in another layout; the parts say so to the bit."""
    before, after = Formation(kinds[0], 1, ranks.size), Formation(kinds[1], 1, ranks.size - 1)
    state = state_of(small_model(), TrainingSpec(layout=kinds[0]), ranks)
    everybody = tuple(range(ranks.size))
    change = Change(describe(state.tensors()), Side(before, everybody), Side(after, everybody[1:]), everybody)
    got = carry_out(change, ranks.rank, state.buffers(), "cpu")
    assert bool(got) == (ranks.rank > 0)
    back = Change(change.tensors, change.after, change.before, everybody)
    again = carry_out(back, ranks.rank, got, "cpu")
    assert all(torch.equal(again[name], part) for name, part in state.buffers().items())
    other = state_of(small_model(5), TrainingSpec(layout=kinds[0]), ranks)
    take(other, again)
    assert all(torch.equal(part, state.buffers()[name]) for name, part in other.buffers().items())
    assert not again


@pytest.mark.parametrize("kinds", [(LayoutKind.FSDP, LayoutKind.FSDP)], ids=str)
def test_a_state_comes_back_to_the_bit(kinds: tuple[LayoutKind, LayoutKind], tmp_path: Path) -> None:
    act(partial(_moves, kinds=kinds), Formation(kinds[0], 1, 2), TrainingSpec(layout=kinds[0]), tmp_path)


def test_a_whole_model_has_the_names_of_a_state() -> None:
    model = small_model()
    state = state_of(model, TrainingSpec(kl_weight=0.1))
    names = {name for name in state.tensors() if not name.startswith("exp_avg")}
    assert names == set(dict(whole_of(model)) | dict(whole_of(model, "reference.")))
