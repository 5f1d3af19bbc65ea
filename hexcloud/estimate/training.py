"""How fast a gang trains: FLOPs over the FLOPS it reaches, plus communication that compute does not hide (`traffic`).

FLOPs per token: 2P a forward pass, 4P a backward pass, and causal attention on top, 2*layers*hidden*context per forward
pass (as counted in Megatron-LM, arXiv 2104.04473), at its own, slower rate. A second forward pass gives pi_prox, a
third recomputes activations.
"""

import math
from dataclasses import dataclass

from hexcloud.domain.calibration import Efficiency
from hexcloud.domain.formation import Formation
from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.training import LayoutKind
from hexcloud.domain.workload import Workload
from hexcloud.estimate.traffic import Wires, Work, exposed_s

ATTENTION_RATE = 0.5
"""Speed of attention as a share of that of matmuls. MPT-7B at 65,536 tokens implies 0.34 on H100 and 0.40 on A100 at
32,768 (mosaicml/llm-foundry, benchmarking README @061f2c7) with the first FlashAttention; later kernels do better."""
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
    micro_batch: int
    """Samples per forward pass and rank."""
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
    passes = 3 + int(workload.activation_recompute) + int(workload.recompute_prox)
    return passes * forward


def attention_context(workload: Workload) -> float:
    """Return the mean sequence length as attention sees it, E[S^2] / E[S]."""
    spread = (workload.response_cv * workload.response_tokens) ** 2
    return workload.tokens_per_sample + spread / workload.tokens_per_sample


def mfu(efficiency: Efficiency, ranks: int) -> float:
    """Return the share of peak FLOPS reached on `ranks` GPUs. Without the decay an all-H20 gang is off by 2x."""
    doublings = max(0.0, math.log2(ranks / _NODE_GPUS))
    return efficiency.mfu * math.pow(1.0 - efficiency.mfu_decay, doublings)


def step_s(gang: Gang, workload: Workload) -> float:
    """Return seconds to train one published batch: compute of the fullest rank, and communication that shows."""
    formation = gang.formation
    samples = math.ceil(workload.samples_per_step / formation.data_ranks)
    compute = samples * _sample_compute_s(gang, workload)
    wires = Wires(formation, gang.gpu.link_gb_per_s, gang.network_gb_per_s)
    work = Work(samples, math.ceil(samples / gang.micro_batch), compute)
    return (compute + exposed_s(wires, work, workload)) / gang.efficiency.training_speed


def samples_per_s(gang: Gang, workload: Workload) -> float:
    """Return trained samples per second of the whole gang."""
    return workload.samples_per_step / step_s(gang, workload)


def _sample_compute_s(gang: Gang, workload: Workload) -> float:
    formation = gang.formation
    flops = workload.tokens_per_sample * flops_per_token(workload, formation.tensor)
    return flops / (gang.gpu.bf16_tflops * 1e12 * mfu(gang.efficiency, formation.size))
