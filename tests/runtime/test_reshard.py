from pathlib import Path

import torch

from hexcloud.runtime.reshard import allocate, describe
from hexcloud.runtime.reshard_layout import TensorSpec
from hexcloud.runtime.reshard_rollout import RolloutForm, rollout
from tests.runtime.layouts import decoder
from tests.runtime.reshard_world import act, narrowing, random_changes, real_fsdp, wrong_buffer


def test_real_processes_change_any_layout_into_any_other_bit_by_bit(tmp_path: Path) -> None:
    """Random layouts over three nodes, other types, and a gang of three that becomes FSDP2's own gang of two."""
    act((random_changes, narrowing, real_fsdp, wrong_buffer), 3, tmp_path)


def test_buffers_are_zeroed_and_of_the_layouts_type() -> None:
    layout = rollout(decoder(1, 12, 7), 1, [(0,)], RolloutForm(6, 2))
    buffers = allocate(layout, 0)
    assert buffers["model.embed_tokens.weight"].shape == (64, 12)
    assert {buffer.dtype for buffer in buffers.values()} == {torch.bfloat16}
    assert not any(buffer.any() for buffer in buffers.values())


def test_a_state_dict_is_described() -> None:
    described = describe({"w": torch.zeros(3, 2, dtype=torch.bfloat16), "step": torch.tensor(1.0)})
    assert described == {"w": TensorSpec((3, 2), "bfloat16"), "step": TensorSpec((), "float32")}
