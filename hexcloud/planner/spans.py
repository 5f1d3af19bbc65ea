"""spans: of how many machines a replica is made, and of how many GPUs.

A replica takes one machine wherever the market lists a machine of that GPU which holds the model. Elsewhere it takes
two, four or eight of one offer, as far as the engine can (`Workload.spans`), and all their GPUs share every layer:
SGLang's `--tp` over `--nnodes`. That depends on model and market alone, never on wishes: a policy that knows fewer
rules leaves every column that there was.
"""

from collections import defaultdict
from functools import cached_property

from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.market import Market
from hexcloud.domain.model import ModelSpec
from hexcloud.domain.workload import Workload
from hexcloud.estimate.memory import largest_batch, usable_bytes

MAX_TP = 8
"""Inside a machine."""
WIDEST = 8
"""Machines of the largest replica that any engine runs over."""
_ALONE = (1,)


class Spans:
    """What one market's GPUs need for one job."""

    def __init__(self, market: Market, workload: Workload) -> None:
        self._market, self._workload = market, workload
        self._of_gpu: dict[str, tuple[int, ...]] = {}

    def of(self, gpu: GpuSpec) -> tuple[int, ...]:
        """Return how many machines of this GPU may make a replica, fewest first; one where nothing else is of use."""
        if gpu.name not in self._of_gpu:
            wanted = self._workload.spans
            self._of_gpu[gpu.name] = _ALONE if not wanted or self._is_held_by_one(gpu) else wanted
        return self._of_gpu[gpu.name]

    def mend(self, gpu: GpuSpec, gpu_count: int) -> str:
        """Return what lets machines of this GPU take part of which one does not hold the weights; may be empty."""
        if max(self.of(gpu)) > 1:
            return ""
        if self._workload.spans:
            return f"; machines with more {gpu.name} hold them"
        is_held = self._workload.model.weight_bytes <= usable_bytes(gpu) * gpu_count * WIDEST
        return f"; {WIDEST} machines do, where the engine runs over several (engine: sglang)" if is_held else ""

    def _is_held_by_one(self, gpu: GpuSpec) -> bool:
        degrees = {tp for count in self._counts[gpu.name] for tp in legal_tp(count, self._workload.model)}
        return any(largest_batch(self._workload, gpu, tp) for tp in degrees)

    @cached_property
    def _counts(self) -> dict[str, set[int]]:
        """GPUs of the machines of each type, in one pass: the market has thousands of offers."""
        counts: dict[str, set[int]] = defaultdict(set)
        for gpu, count in {(offer.gpu, offer.gpu_count) for offer in self._market.offers}:
            counts[gpu].add(count)
        return counts


def legal_tp(gpu_count: int, model: ModelSpec) -> list[int]:
    """Return the degrees that divide the attention heads and one machine's GPUs, inside that machine."""
    return [tp for tp in range(1, min(MAX_TP, gpu_count) + 1) if model.heads % tp == 0 and gpu_count % tp == 0]


def is_legal_across(tp: int, model: ModelSpec) -> bool:
    """Can so many GPUs of several machines share every layer? Key-value heads are cut, or copied a whole number of
    times, as SGLang does.
    """
    is_cut = model.heads % tp == 0 and model.intermediate % tp == 0
    return is_cut and (model.kv_heads % tp == 0 or tp % model.kv_heads == 0)
