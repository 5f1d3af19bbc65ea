import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hexcloud.domain.errors import EngineError
from hexcloud.runtime.reshard_layout import Layout, TensorSpec, flat, hybrid, replicated, sharded
from hexcloud.runtime.reshard_plan import Move, ReshardPlan, plan_reshard
from tests.runtime.layouts import decoder, elements, lacking_bytes, random_layout

Rows = list[dict[str, NDArray[np.int64]]]


def changed(rng: random.Random, size: int) -> ReshardPlan:
    tensors = decoder(1, 12, 7)
    source, target = (random_layout(rng, tensors, size) for _ in range(2))
    nodes = tuple(rng.randrange(rng.randint(1, size)) for _ in range(size))
    return plan_reshard(source, target, nodes, chunk_bytes=rng.choice([64, 300, 1 << 20]))


def filled(layout: Layout) -> Rows:
    """Return each rank's buffers with the elements' numbers in them, -1 where there are none."""
    rows: Rows = []
    for shard in layout.shards:
        buffers = {name: np.full(int(np.prod(shape)), -1) for name, shape in shard.buffers.items()}
        for name, held in shard.holdings.items():
            found, places = elements(held)
            buffers[held.buffer][places] = found + 100_000 * sorted(layout.tensors).index(name)
        rows.append(buffers)
    return rows


def carry(move: Move, source: tuple[Layout, Rows], target: tuple[Layout, Rows], written: Rows) -> None:
    from_held = source[0].shards[move.source].holdings[move.tensor]
    to_held = target[0].shards[move.target].holdings[move.tensor]
    for start, length in zip(move.segments.starts.tolist(), move.segments.lengths.tolist(), strict=True):
        read, write = (int(held.locate(np.array([start]))[0]) for held in (from_held, to_held))
        piece = source[1][move.source][from_held.buffer][read : read + length]
        target[1][move.target][to_held.buffer][write : write + length] = piece
        written[move.target][to_held.buffer][write : write + length] += 1


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9), size=st.integers(1, 6))
def test_every_wanted_element_arrives_exactly_once(seed: int, size: int) -> None:
    plan = changed(random.Random(seed), size)
    source, wanted = filled(plan.source), filled(plan.target)
    got = [{name: np.full_like(row, -1) for name, row in rows.items()} for rows in wanted]
    written = [{name: np.zeros_like(row) for name, row in rows.items()} for rows in wanted]
    for move in (*plan.own, *plan.sent):
        carry(move, (plan.source, source), (plan.target, got), written)
    for move in plan.passed:
        carry(move, (plan.target, got), (plan.target, got), written)
    for rank, rows in enumerate(wanted):
        for name, row in rows.items():
            assert got[rank][name].tolist() == row.tolist()
            assert written[rank][name].tolist() == (row >= 0).astype(int).tolist()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9), size=st.integers(1, 6))
def test_a_node_is_sent_what_it_lacks_and_nothing_else(seed: int, size: int) -> None:
    plan = changed(random.Random(seed), size)
    assert plan.crossing_bytes() == lacking_bytes(plan.source, plan.target, plan.nodes)
    assert all(plan.nodes[move.source] == plan.nodes[move.target] for move in plan.passed)
    assert all(move.source == move.target for move in plan.own)
    assert all(move.source != move.target for move in (*plan.sent, *plan.passed))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000))
def test_the_same_layouts_give_the_same_plan(seed: int) -> None:
    one, other = (changed(random.Random(seed), 4) for _ in range(2))
    assert [(m.tensor, m.source, m.target, m.segments.starts.tolist()) for m in one.sent] == [
        (m.tensor, m.source, m.target, m.segments.starts.tolist()) for m in other.sent
    ]


@settings(deadline=None)
@given(holders=st.integers(1, 6), takers=st.integers(1, 4), chunk=st.sampled_from([64, 256]))
def test_who_holds_the_same_sends_the_same_but_for_a_chunk(holders: int, takers: int, chunk: int) -> None:
    tensors = {"w": TensorSpec((100, 7), "float32"), "v": TensorSpec((333,), "bfloat16")}
    size = holders + takers
    source, target = (
        replicated(tensors, size, range(holders)),
        replicated(tensors, size, range(holders, size)),
    )
    plan = plan_reshard(source, target, tuple(range(size)), chunk_bytes=chunk)
    loads = [sum(move.bytes for move in plan.sent if move.source == rank) for rank in range(holders)]
    assert max(loads) - min(loads) <= chunk
    assert all(move.bytes <= chunk for move in plan.sent)


def test_a_forced_sender_is_spared_where_others_can_send() -> None:
    tensors = {"both": TensorSpec((8,), "float32"), "mine": TensorSpec((8,), "float32")}
    everything, first = replicated(tensors, 3, (0, 1)), replicated({"both": tensors["both"]}, 3, (1,))
    source = Layout(tensors, (everything.shards[0], first.shards[1], everything.shards[2]))
    plan = plan_reshard(source, replicated(tensors, 3, (2,)), (0, 1, 2))
    assert {(move.tensor, move.source) for move in plan.sent} == {("mine", 0), ("both", 1)}


def test_a_node_gets_one_copy_and_passes_it_on() -> None:
    tensors = {"w": TensorSpec((16, 4), "float32")}
    plan = plan_reshard(sharded(tensors, 4, (0,)), replicated(tensors, 4, (1, 2, 3)), (0, 1, 1, 1))
    assert plan.crossing_bytes() == {0: 0, 1: 256}
    assert sum(move.bytes for move in plan.passed) == 512


def test_a_smaller_type_travels() -> None:
    def plan(before: str, after: str) -> ReshardPlan:
        one, other = ({"w": TensorSpec((8,), dtype)} for dtype in (before, after))
        return plan_reshard(replicated(one, 2, (0,)), replicated(other, 2, (1,)), (0, 1))

    assert {move.dtype for move in plan("float32", "bfloat16").sent} == {"bfloat16"}
    assert {move.dtype for move in plan("bfloat16", "float32").sent} == {"bfloat16"}


def test_what_nobody_holds_is_named() -> None:
    tensors = {"w": TensorSpec((8,), "float32")}
    half = flat(tensors, 2, (0, 1))
    source = Layout(tensors, (half.shards[0], replicated(tensors, 2, ()).shards[1]))
    with pytest.raises(EngineError, match="no rank holds w from element 4 on"):
        plan_reshard(source, replicated(tensors, 2, (1,)), (0, 1))


def test_layouts_of_other_models_are_named() -> None:
    one, other = ({"w": TensorSpec((rows,), "float32")} for rows in (8, 9))
    with pytest.raises(EngineError, match=r"w of shape \(9,\) is wanted, and has shape \(8,\)"):
        plan_reshard(replicated(one, 1, (0,)), replicated(other, 1, (0,)), (0,))
    with pytest.raises(EngineError, match="is not there"):
        plan_reshard(replicated({}, 1, (0,)), replicated(other, 1, (0,)), (0,))
    with pytest.raises(EngineError, match="worlds of 1, 2, 1 ranks"):
        plan_reshard(replicated(one, 1, (0,)), replicated(one, 2, (0,)), (0,))


def test_a_gang_that_grows_moves_less_than_the_model() -> None:
    tensors = decoder(2, 24, 50)
    plan = plan_reshard(hybrid(tensors, 4, [(0, 1)]), hybrid(tensors, 4, [(0, 1, 2, 3)]), (0, 1, 2, 3))
    whole = sum(spec.size * spec.item_bytes for spec in tensors.values())
    assert whole / 2 <= sum(plan.crossing_bytes().values()) <= 0.8 * whole
