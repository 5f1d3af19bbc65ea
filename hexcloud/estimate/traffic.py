"""What a gang's ranks send each other in a step, by layout, and how much of it compute does not hide.

Of k ranks in a ring each sends (k - 1) / k of what is gathered or scattered, and twice that of what is summed for all.

`fsdp`: every pass gathers the weights (forward, backward, for pi_prox and of a reference) and scatters fp32 gradients
in one ring over all ranks, as fast as its slowest link. `hsdp`: the same inside a machine, at its own link; machines
sum their shards of the gradients once per update. `tp`: the same as `fsdp` over machines, each rank with its part of
the layers; and inside a machine every layer sums activations, which nothing hides.
"""

from dataclasses import dataclass

from hexcloud.domain.formation import Formation
from hexcloud.domain.training import LayoutKind
from hexcloud.domain.workload import Workload
from hexcloud.estimate.load import Load
from hexcloud.estimate.memory import params_to_share

HIDDEN_SHARE = 0.8
"""Share of compute behind which FSDP's prefetch hides communication; first gather and last scatter show (estimate)."""
NETWORK_SHARE = 0.7
"""Share of a machine's network that NCCL reaches, 0.6 over sockets to 0.9 over EFA (general knowledge, not re-read)."""
_GRADIENT_BYTES = 4.0
_SUMS_FORWARD, _SUMS_BACKWARD = 2, 5
"""All-reduces of a layer's activations: behind attention and MLP; and before each of the five projections, whose input
gradients DTensor sums one by one."""


@dataclass(frozen=True)
class Wires:
    """Between which ranks bytes go. Rates are one way, GB/s."""

    formation: Formation
    link_gb_per_s: float
    """Of one GPU, inside its machine."""
    network_gb_per_s: float
    """Of one machine, shared by its ranks."""

    @property
    def share_gb_per_s(self) -> float:
        """What one rank has when all of its machine speak to other machines at once."""
        return min(self.link_gb_per_s, self.network_gb_per_s / self.formation.ranks)

    @property
    def slowest_gb_per_s(self) -> float:
        """Of a ring through all ranks, which leaves each machine once."""
        is_one = self.formation.machines == 1
        return self.link_gb_per_s if is_one else min(self.link_gb_per_s, self.network_gb_per_s)


@dataclass(frozen=True)
class Work:
    """What the fullest rank does in a step."""

    load: Load
    compute_s: float


def exposed_s(wires: Wires, work: Work, workload: Workload) -> float:
    """Return seconds of a step in which ranks wait for bytes."""
    formation, model = wires.formation, workload.model
    per_param = workload.published_bytes_per_param * (2 + workload.extra_forwards) + _GRADIENT_BYTES
    if formation.kind is LayoutKind.HSDP:
        inside_s = _ring_s(formation.ranks, model.params * per_param, wires.link_gb_per_s)
        return _left(work, inside_s) + _summed_s(wires, work, workload)
    if formation.kind is LayoutKind.TP:
        own = params_to_share(model, formation.tensor)
        across_s = _ring_s(formation.machines, own * per_param, wires.share_gb_per_s)
        return _left(work, across_s) + _activations_s(wires, work, workload)
    return _left(work, _ring_s(formation.size, model.params * per_param, wires.slowest_gb_per_s))


def _left(work: Work, pass_s: float) -> float:
    """Return what is left of what every pass sends when compute hides what it can."""
    return max(0.0, work.load.passes * pass_s - HIDDEN_SHARE * work.compute_s)


def _summed_s(wires: Wires, work: Work, workload: Workload) -> float:
    """Return what shows of the sums of gradients over machines: the backward pass that ends an update hides them."""
    formation, model = wires.formation, workload.model
    shard_bytes = _GRADIENT_BYTES * model.params / formation.shards
    sum_s = 2.0 * _ring_s(formation.machines, shard_bytes, wires.share_gb_per_s)
    backward = 2 + workload.activation_recompute
    pass_s = work.compute_s / work.load.passes * backward / (backward + 1 + workload.extra_forwards)
    return work.load.updates * max(0.0, sum_s - HIDDEN_SHARE * pass_s)


def _activations_s(wires: Wires, work: Work, workload: Workload) -> float:
    model, tensor = workload.model, wires.formation.tensor
    forwards = 1 + workload.activation_recompute + workload.extra_forwards
    sums = model.layers * (_SUMS_FORWARD * forwards + _SUMS_BACKWARD)
    activation_bytes = work.load.tokens * model.hidden * workload.published_bytes_per_param
    return 2.0 * sums * _ring_s(tensor, activation_bytes, wires.link_gb_per_s)


def _ring_s(ranks: int, size_bytes: float, gb_per_s: float) -> float:
    """Return seconds to gather or to scatter bytes over a ring."""
    return (ranks - 1) / ranks * size_bytes / (gb_per_s * NETWORK_SHARE * 1e9)
