from collections import Counter

import pytest

from hexcloud.domain.formation import Formation
from hexcloud.domain.model import ModelSpec
from hexcloud.domain.training import LayoutKind
from hexcloud.estimate.resize import MEETING_S, crossings, resize_s
from hexcloud.runtime.reshard_layout import TensorSpec
from hexcloud.runtime.reshard_plan import plan_reshard
from hexcloud.runtime.trainer_layout import trainer_layout
from hexcloud.simulator.world import small_workload

MODEL: ModelSpec = small_workload().model
FSDP, HSDP, TP = LayoutKind.FSDP, LayoutKind.HSDP, LayoutKind.TP
ELEMENTS = 32 << 18
RANKS = 2


def moved(before: Formation, after: Formation) -> float:
    """Return how many states cross the busiest machine's link when the trainer makes this change."""
    tensors = {"weight.layers.0.mlp.up_proj.weight": TensorSpec((ELEMENTS >> 8, 1 << 8), "float32")}
    size = max(before.size, after.size)
    nodes = tuple(rank // RANKS for rank in range(size))
    source, target = (trainer_layout(tensors, one, size, tuple(range(one.size))) for one in (before, after))
    crossed: Counter[tuple[str, int]] = Counter()
    for move in plan_reshard(source, target, nodes).crossing():
        crossed["out", nodes[move.source]] += move.bytes
        crossed["in", nodes[move.target]] += move.bytes
    return max(crossed.values(), default=0) / (4 * ELEMENTS)


def test_a_resize_takes_as_long_as_the_whole_state_over_one_link() -> None:
    sizes = Formation(FSDP, 1, 8), Formation(FSDP, 2, 8)
    slow, fast = (resize_s(MODEL, *sizes, gb_per_s=rate) for rate in (1.25, 12.5))
    assert fast - MEETING_S == pytest.approx(18 * 1.543714304 / 12.5)
    assert slow - MEETING_S == pytest.approx(10 * (fast - MEETING_S))


def test_a_resize_is_a_small_part_of_a_restart() -> None:
    assert resize_s(MODEL, Formation(FSDP, 1, 8), Formation(HSDP, 2, 8), gb_per_s=12.5) < 10.0


@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("after", [1, 2, 4, 8])
@pytest.mark.parametrize("kinds", [(FSDP, FSDP), (HSDP, HSDP), (FSDP, HSDP), (HSDP, FSDP), (TP, TP), (TP, HSDP)])
def test_no_link_carries_more_than_is_counted(before: int, after: int, kinds: tuple[LayoutKind, LayoutKind]) -> None:
    sizes = Formation(kinds[0], before, RANKS), Formation(kinds[1], after, RANKS)
    assert moved(*sizes) <= crossings(*sizes) * 1.02  # chunks spread evenly but for the last


def test_who_holds_a_copy_sends_as_many_as_are_lacking() -> None:
    sizes = Formation(HSDP, 2, RANKS), Formation(HSDP, 8, RANKS)
    assert crossings(*sizes) == 3.0 == pytest.approx(moved(*sizes))
