"""Random layouts of a small model, of every kind that the resharder knows and of none, and a plain way to fill them."""

import random
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hexcloud.runtime.reshard_layout import (
    Holding,
    Layout,
    Shard,
    TensorSpec,
    flat,
    hybrid,
    replicated,
    sharded,
    world,
)
from hexcloud.runtime.reshard_rollout import RolloutForm, rollout

FORM = RolloutForm(query_heads=6, kv_heads=2, vocab_multiple=4)


def decoder(layers: int, hidden: int, vocab: int, dtype: str = "bfloat16") -> dict[str, TensorSpec]:
    """Return a model with Hugging Face names for FORM; `hidden` is a multiple of its query heads."""
    kv = hidden // FORM.query_heads * FORM.kv_heads
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    for layer in range(layers):
        shapes |= {
            f"model.layers.{layer}.{name}": shape
            for name, shape in {
                "self_attn.q_proj.weight": (hidden, hidden),
                "self_attn.k_proj.weight": (kv, hidden),
                "self_attn.v_proj.weight": (kv, hidden),
                "self_attn.q_proj.bias": (hidden,),
                "self_attn.k_proj.bias": (kv,),
                "self_attn.v_proj.bias": (kv,),
                "self_attn.o_proj.weight": (hidden, hidden),
                "mlp.gate_proj.weight": (2 * hidden + 1, hidden),
                "mlp.up_proj.weight": (2 * hidden + 1, hidden),
                "mlp.down_proj.weight": (hidden, 2 * hidden + 1),
                "input_layernorm.weight": (hidden,),
            }.items()
        }
    return {name: TensorSpec(shape, dtype) for name, shape in shapes.items()}


def random_layout(rng: random.Random, tensors: dict[str, TensorSpec], size: int) -> Layout:
    """Return a layout over some of the ranks that together hold everything."""
    ranks = sorted(rng.sample(range(size), rng.randint(1, size)))
    kinds = ["flat", "rows", "columns", "copies", "hybrid", "rollout", "rollout_unfused", "chance"]
    kind = rng.choice(kinds)
    tp = rng.randint(1, len(ranks))
    groups = [ranks[begin : begin + tp] for begin in range(0, len(ranks) - tp + 1, tp)]
    if kind == "flat":
        return flat(tensors, size, ranks)
    if kind in {"rows", "columns"}:
        return sharded(tensors, size, ranks, dim=int(kind == "columns"))
    if kind == "copies":
        return replicated(tensors, size, ranks)
    if kind == "hybrid":
        return hybrid(tensors, size, groups)
    if kind == "chance":
        return _by_chance(rng, tensors, size)
    form = RolloutForm(FORM.query_heads, FORM.kv_heads, kind == "rollout", FORM.vocab_multiple)
    return rollout(tensors, size, groups, form)


def _by_chance(rng: random.Random, tensors: dict[str, TensorSpec], size: int) -> Layout:
    """Cut each tensor anywhere and give each piece to any ranks, in any order in their buffers."""
    held: dict[int, dict[str, Holding]] = {rank: {} for rank in range(size)}
    shapes: dict[int, dict[str, tuple[int, ...]]] = {rank: {} for rank in range(size)}
    for name, spec in tensors.items():
        cuts = sorted({0, spec.size, *(rng.randint(0, spec.size) for _ in range(rng.randint(0, 7)))})
        pieces = list(pairwise(cuts))
        owners = [rng.sample(range(size), rng.randint(1, size)) for _ in pieces]
        for rank in range(size):
            mine = [piece for piece, ranks in zip(pieces, owners, strict=True) if rank in ranks]
            if not mine:
                continue
            starts, stops = np.array(mine).T
            lengths = stops - starts
            order = np.array(rng.sample(range(len(mine)), len(mine)))
            offsets = np.empty_like(starts)
            offsets[order] = np.cumsum(lengths[order]) - lengths[order]
            held[rank][name] = Holding(name, starts, lengths, offsets)
            shapes[rank][name] = (int(lengths.sum()) + rng.randint(0, 3),)
    return world(tensors, size, {rank: Shard(shapes[rank], held[rank]) for rank in range(size)})


def elements(held: Holding) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return every element of a tensor that is held, and its place in the buffer."""
    pairs = list(zip(held.starts.tolist(), held.lengths.tolist(), held.offsets.tolist(), strict=True))
    whole = np.concatenate([np.arange(start, start + length) for start, length, _ in pairs])
    places = np.concatenate([np.arange(offset, offset + length) for _, length, offset in pairs])
    return whole, places


def lacking_bytes(source: Layout, target: Layout, nodes: tuple[int, ...]) -> dict[int, int]:
    """Return the bytes that each node wants and has not, counted element by element."""
    lacking = dict.fromkeys(nodes, 0)
    for name, spec in target.tensors.items():
        item = min(spec.item_bytes, source.tensors[name].item_bytes)
        for node in lacking:
            has, wants = (np.zeros(spec.size, dtype=bool) for _ in range(2))
            for rank in (rank for rank, one in enumerate(nodes) if one == node):
                for flags, layout in ((has, source), (wants, target)):
                    if held := layout.shards[rank].holdings.get(name):
                        flags[elements(held)[0]] = True
            lacking[node] += int((wants & ~has).sum()) * item
    return lacking
