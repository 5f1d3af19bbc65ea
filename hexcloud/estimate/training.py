"""How fast a gang trains: FLOPs over the FLOPS it reaches, plus communication that compute does not hide (`traffic`).

FLOPs per token: 2P a forward pass, 4P a backward pass, and causal attention on top, 2*layers*hidden*context per forward
pass (as counted in Megatron-LM, arXiv 2104.04473), at its own, slower rate. More forward passes give pi_prox and what a
reference says, and recompute activations.
"""

import math
from dataclasses import dataclass

from hexcloud.domain.calibration import Efficiency
from hexcloud.domain.formation import Formation
from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.training import PASS_TOKENS, LayoutKind
from hexcloud.domain.workload import Workload
from hexcloud.estimate.load import Load, load_of
from hexcloud.estimate.traffic import Wires, Work, exposed_s

ATTENTION_RATE = 0.5
"""Speed of attention as a share of that of matmuls. MPT-7B at 65,536 tokens implies 0.34 on H100 and 0.40 on A100 at
32,768 (mosaicml/llm-foundry, benchmarking README @061f2c7) with the first FlashAttention; later kernels do better."""
FP32_SPEED = 1 / 6
"""Of bf16's: without tensor cores A100 and H100 have a fifteenth of its FLOPS (19.5 of 312 and 67 of 989, data sheets),
of which kernels reach more than twice the share (estimate)."""
_BF16_BYTES = 2
_NODE_GPUS = 8
"""Where `Efficiency.mfu` is measured; it decays per doubling beyond."""


@dataclass(frozen=True)
class Gang:
    """`nodes` equal machines of one zone that train together."""

    gpu: GpuSpec
    efficiency: Efficiency
    nodes: int
    gpus_per_node: int
    network_gb_per_s: float
    """Of one machine, one way."""
    pass_tokens: int = PASS_TOKENS
    """Most tokens of a forward pass of a rank."""
    layout: LayoutKind = LayoutKind.FSDP

    @property
    def formation(self) -> Formation:
        """How its GPUs share the work."""
        return Formation(self.layout, self.nodes, self.gpus_per_node)


def flops_per_token(workload: Workload, tensor: int = 1) -> float:
    """Return FLOPs that one trained token costs each of the `tensor` ranks that share the products of its layers.

    Recomputation and pi_prox are included, and attention as if it were matmuls. The head is every rank's own.
    """
    model = workload.model
    attention = 2.0 * model.layers * model.hidden * attention_context(workload)
    head = 2.0 * model.vocab * model.hidden
    forward = head + (2.0 * model.params - head + attention / ATTENTION_RATE) / tensor
    return (3 + workload.activation_recompute + workload.extra_forwards) * forward


def attention_context(workload: Workload) -> float:
    """Return the mean sequence length as attention sees it, E[S^2] / E[S]."""
    spread = (workload.response_cv * workload.response_tokens) ** 2
    return workload.tokens_per_sample + spread / workload.tokens_per_sample


def mfu(efficiency: Efficiency, ranks: int) -> float:
    """Return the share of peak FLOPS reached on `ranks` GPUs. Without the decay an all-H20 gang is off by 2x."""
    doublings = max(0.0, math.log2(ranks / _NODE_GPUS))
    return efficiency.mfu * math.pow(1.0 - efficiency.mfu_decay, doublings)


def step_s(gang: Gang, workload: Workload) -> float:
    """Return seconds to train one published batch in the passes that the trainer makes of it."""
    return loaded_step_s(gang, workload, load_of(workload, gang.formation.data_ranks, gang.pass_tokens))


def loaded_step_s(gang: Gang, workload: Workload, load: Load) -> float:
    """Return seconds of a step that is this load: compute of the fullest rank, and communication that shows."""
    formation = gang.formation
    compute = load.tokens * _token_compute_s(gang, workload)
    wires = Wires(formation, gang.gpu.link_gb_per_s, gang.network_gb_per_s)
    return (compute + exposed_s(wires, Work(load, compute), workload)) / gang.efficiency.training_speed


def samples_per_s(gang: Gang, workload: Workload) -> float:
    """Return trained samples per second of the whole gang."""
    return workload.samples_per_step / step_s(gang, workload)


def _token_compute_s(gang: Gang, workload: Workload) -> float:
    formation = gang.formation
    speed = 1.0 if workload.published_bytes_per_param <= _BF16_BYTES else FP32_SPEED
    tflops = gang.gpu.bf16_tflops * speed * mfu(gang.efficiency, formation.size)
    return flops_per_token(workload, formation.tensor) / (tflops * 1e12)
