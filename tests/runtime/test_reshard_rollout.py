import pytest
import torch

from hexcloud.runtime.reshard_layout import Layout, TensorSpec
from hexcloud.runtime.reshard_rollout import RolloutForm, rollout
from tests.runtime.layouts import decoder, elements

HEADS, KV, WIDTH = 6, 2, 12
LAYER = "model.layers.0."
TENSORS = decoder(1, WIDTH, 10)


def whole(name: str) -> torch.Tensor:
    return torch.arange(TENSORS[name].size).reshape(TENSORS[name].shape) + 1000 * sorted(TENSORS).index(name) + 1


def filled(layout: Layout, rank: int) -> dict[str, torch.Tensor]:
    shard = layout.shards[rank]
    buffers = {name: torch.zeros(shape, dtype=torch.int64) for name, shape in shard.buffers.items()}
    for name, held in shard.holdings.items():
        found, places = elements(held)
        buffers[held.buffer].view(-1)[places] = whole(name).flatten()[found]
    return buffers


def attention(name: str, heads: int, chosen: slice) -> torch.Tensor:
    rows = whole(LAYER + name)
    return rows.reshape(heads, -1, *rows.shape[1:])[chosen].reshape(-1, *rows.shape[1:])


@pytest.mark.parametrize("rank", [0, 1])
def test_fused_projections_are_the_engines_own(rank: int) -> None:
    """As in SGLang and vLLM: this rank's query heads, then its keys, then its values."""
    found = filled(rollout(TENSORS, 2, [(0, 1)], RolloutForm(HEADS, KV)), rank)
    q, kv = slice(3 * rank, 3 * rank + 3), slice(rank, rank + 1)
    names = [("self_attn.q_proj", HEADS, q), ("self_attn.k_proj", KV, kv), ("self_attn.v_proj", KV, kv)]
    for kind in ("weight", "bias"):
        rows = [attention(f"{name}.{kind}", heads, part) for name, heads, part in names]
        assert torch.equal(found[f"{LAYER}self_attn.qkv_proj.{kind}"], torch.cat(rows))
    half = slice(0, 12) if rank == 0 else slice(12, 25)
    gate, up = (whole(f"{LAYER}mlp.{name}.weight")[half] for name in ("gate_proj", "up_proj"))
    assert torch.equal(found[f"{LAYER}mlp.gate_up_proj.weight"], torch.cat([gate, up]))
    assert torch.equal(found[f"{LAYER}mlp.down_proj.weight"], whole(f"{LAYER}mlp.down_proj.weight")[:, half])
    out = whole(f"{LAYER}self_attn.o_proj.weight")
    assert torch.equal(found[f"{LAYER}self_attn.o_proj.weight"], out[:, 6 * rank : 6 * rank + 6])
    assert torch.equal(found[f"{LAYER}input_layernorm.weight"], whole(f"{LAYER}input_layernorm.weight"))


def test_more_ranks_than_kv_heads_share_them() -> None:
    layout = rollout(TENSORS, 3, [(0, 1, 2)], RolloutForm(HEADS, KV, is_fused=False))
    shapes = [shard.buffers[f"{LAYER}self_attn.k_proj.weight"][0] for shard in layout.shards]
    assert shapes == [2, 4, 2], "query heads 2 and 3 read both KV heads of two rows each"


def test_the_vocabulary_is_padded_with_rows_of_nobody() -> None:
    layout = rollout(TENSORS, 2, [(0, 1)], RolloutForm(HEADS, KV, vocab_multiple=8))
    rows = [filled(layout, rank)["model.embed_tokens.weight"] for rank in (0, 1)]
    assert [len(part) for part in rows] == [8, 8]
    assert torch.equal(torch.cat(rows)[:10], whole("model.embed_tokens.weight"))
    assert not rows[1][2:].any()


def test_each_replica_holds_the_whole_model() -> None:
    layout = rollout(TENSORS, 4, [(0,), (3, 1)], RolloutForm(HEADS, KV, is_fused=False))
    layout.check()
    assert torch.equal(filled(layout, 0)[f"{LAYER}mlp.down_proj.weight"], whole(f"{LAYER}mlp.down_proj.weight"))
    assert layout.shards[3].buffers[f"{LAYER}self_attn.q_proj.weight"] == (6, 12)
    assert layout.shards[2].buffers == {}


def test_names_of_no_known_module_are_copied() -> None:
    layout = rollout({"odd": TensorSpec((3,), "float32")}, 2, [(0, 1)], RolloutForm(2, 2))
    assert [shard.buffers["odd"] for shard in layout.shards] == [(3,), (3,)]
