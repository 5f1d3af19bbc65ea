import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hexcloud.domain.errors import EngineError
from hexcloud.runtime.reshard_layout import (
    Holding,
    Layout,
    Shard,
    TensorSpec,
    flat,
    hybrid,
    interval,
    replicated,
    sharded,
    world,
)
from tests.runtime.layouts import decoder, elements, random_layout

SHAPES = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple)


@settings(deadline=None)
@given(seed=st.integers(0, 10**9), size=st.integers(1, 5))
def test_every_layout_is_sound_and_loses_no_element(seed: int, size: int) -> None:
    tensors = decoder(1, 12, 7)
    layout = random_layout(random.Random(seed), tensors, size)
    layout.check()
    for name, spec in tensors.items():
        held = [shard.holdings[name] for shard in layout.shards if name in shard.holdings]
        assert len(set(np.concatenate([elements(one)[0] for one in held]).tolist())) == spec.size


@given(shape=SHAPES, ranks=st.integers(1, 5), dim=st.integers(0, 2))
def test_shards_are_those_of_torch_chunk(shape: tuple[int, ...], ranks: int, dim: int) -> None:
    whole = torch.arange(TensorSpec(shape, "int64").size).reshape(shape)
    axis = min(dim, len(shape) - 1)
    chunks = whole.chunk(ranks, axis)
    layout = sharded({"w": TensorSpec(shape, "int64")}, ranks, range(ranks), dim)
    for rank, shard in enumerate(layout.shards):
        if rank >= len(chunks):
            assert "w" not in shard.holdings
            continue
        assert shard.buffers["w"] == tuple(chunks[rank].shape)
        elements_held, places = elements(shard.holdings["w"])
        assert chunks[rank].flatten()[places].tolist() == elements_held.tolist()


def test_one_flat_parameter_per_type_is_cut_evenly() -> None:
    tensors = {"a": TensorSpec((3, 3), "bfloat16"), "b": TensorSpec((4,), "float32"), "c": TensorSpec((2,), "bfloat16")}
    layout = flat(tensors, 3, (0, 2))
    assert layout.shards[1] == Shard({}, {})
    assert layout.shards[0].buffers == {"flat.bfloat16": (5,), "flat.float32": (2,)}
    assert "c" not in layout.shards[0].holdings
    assert layout.shards[2].holdings["c"].offsets.tolist() == [4]


def test_hybrid_shards_hold_a_copy_per_group_and_scalars_everywhere() -> None:
    tensors = {"w": TensorSpec((4, 2), "float32"), "step": TensorSpec((), "float32")}
    layout = hybrid(tensors, 4, [(0, 1), (2, 3)])
    assert layout.shards[0].holdings["w"].starts.tolist() == layout.shards[2].holdings["w"].starts.tolist() == [0]
    assert all("step" in shard.holdings for shard in layout.shards)


def test_a_place_is_found_within_its_interval() -> None:
    held = Holding("w", np.array([10, 30]), np.array([5, 5]), np.array([100, 0]))
    assert held.locate(np.array([12, 30, 34])).tolist() == [102, 0, 4]


def damaged(held: Holding) -> Layout:
    return world({"w": TensorSpec((10,), "float32")}, 1, {0: Shard({"w": (10,)}, {"w": held})})


@pytest.mark.parametrize(
    ("starts", "lengths", "offsets", "said"),
    [
        ([0, 3], [4, 2], [0, 4], "overlap"),
        ([0], [0], [0], "empty"),
        ([8], [3], [0], "outside"),
        ([0], [4], [8], "outside"),
        ([0], [4], [-1], "outside"),
    ],
)
def test_an_unsound_layout_is_named(starts: list[int], lengths: list[int], offsets: list[int], said: str) -> None:
    with pytest.raises(EngineError, match=said):
        damaged(Holding("w", np.array(starts), np.array(lengths), np.array(offsets))).check()


def test_copies_are_whole() -> None:
    layout = replicated({"w": TensorSpec((2, 5), "float32")}, 2, (1,))
    assert layout.shards[1].holdings["w"] == interval("w", 0, 10)
