from functools import partial
from pathlib import Path

import pytest
import torch

from hexcloud.domain.formation import Formation
from hexcloud.domain.training import LayoutKind, TrainingSpec
from hexcloud.runtime.reshard import describe
from hexcloud.runtime.trainer_layout import trainer_layout
from hexcloud.runtime.trainer_ranks import Ranks
from tests.runtime.layouts import decoder, elements
from tests.runtime.training import act, small_model, state_of

FORMATIONS = [Formation(kind, machines, ranks) for kind in LayoutKind for machines, ranks in ((1, 1), (3, 1), (2, 2))]


@pytest.mark.parametrize("formation", FORMATIONS, ids=str)
def test_a_layout_is_sound_and_loses_no_element(formation: Formation) -> None:
    tensors = {f"weight.{name}": spec for name, spec in decoder(1, 12, 7).items()}
    tensors |= {"buffer.inv_freq": tensors["weight.model.norm.weight"]}
    places = tuple(range(1, formation.size + 1))
    layout = trainer_layout(tensors, formation, formation.size + 1, places)
    layout.check()
    assert not layout.shards[0].buffers  # it is no rank of the formation
    for name, spec in tensors.items():
        held = [elements(shard.holdings[name])[0].tolist() for shard in layout.shards if name in shard.holdings]
        assert sorted({one for part in held for one in part}) == list(range(spec.size)), name
    assert all(shard.buffers["buffer.inv_freq"] == (12,) for shard in layout.shards[1:])


def _says_what_torch_does(ranks: Ranks, settings: TrainingSpec) -> None:
    model = small_model()
    state = state_of(model, settings, ranks)
    layout = trainer_layout(describe(state.tensors()), ranks.formation, ranks.size, tuple(range(ranks.size)))
    parts, whole = state.buffers(), dict(model.named_parameters())
    shard = layout.shards[ranks.rank]
    assert {name: tuple(part.shape) for name, part in parts.items()} == dict(shard.buffers)
    for name, held in shard.holdings.items():
        kind, _, plain = name.partition(".")
        if kind == "weight":
            found, places = (torch.from_numpy(one) for one in elements(held))
            assert torch.equal(parts[name].flatten()[places], whole[plain].detach().flatten()[found]), name
    for name, weight in state.weights():
        assert torch.equal(weight, whole[name]), name


@pytest.mark.slow
@pytest.mark.parametrize("kind", LayoutKind)
def test_a_layout_says_what_torch_does(kind: LayoutKind, tmp_path: Path) -> None:
    settings = TrainingSpec(layout=kind)
    act(partial(_says_what_torch_does, settings=settings), Formation(kind, 2, 2), settings, tmp_path)
