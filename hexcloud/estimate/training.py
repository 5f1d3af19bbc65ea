"""How fast a gang trains: FLOPs over the FLOPS it reaches, plus communication that compute does not hide.

FLOPs per token: 2P a forward pass, 4P a backward pass, and causal attention on top, 2*layers*hidden*context per forward
pass (as counted in Megatron-LM, arXiv 2104.04473), at its own, slower rate. A second forward pass gives pi_prox, a
third recomputes activations.
"""

import math
from dataclasses import dataclass

from hexcloud.domain.calibration import Efficiency
from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.workload import Workload

HIDDEN_SHARE = 0.8
"""Share of compute behind which FSDP's prefetch hides communication; first gather and last scatter show (estimate)."""
NETWORK_SHARE = 0.7
"""Share of a machine's network that NCCL reaches, 0.6 over sockets to 0.9 over EFA (general knowledge, not re-read)."""
ATTENTION_RATE = 0.5
"""Speed of attention as a share of that of matmuls. MPT-7B at 65,536 tokens implies 0.34 on H100 and 0.40 on A100 at
32,768 (mosaicml/llm-foundry, benchmarking README @061f2c7) with the first FlashAttention; later kernels do better."""
_NODE_GPUS = 8
"""Where `Efficiency.mfu` is measured; it decays per doubling beyond."""


@dataclass(frozen=True)
class Gang:
    """`nodes` equal machines of one zone that train together, fully sharded over all their GPUs."""

    gpu: GpuSpec
    efficiency: Efficiency
    nodes: int
    gpus_per_node: int
    network_gb_per_s: float
    """Of one machine, one way."""
    micro_batch: int
    """Samples per forward pass and rank."""

    @property
    def ranks(self) -> int:
        """GPUs of the gang."""
        return self.nodes * self.gpus_per_node


def flops_per_token(workload: Workload) -> float:
    """Return FLOPs one trained token costs, recomputation and pi_prox included; attention as if it were matmuls."""
    model = workload.model
    attention = 2.0 * model.layers * model.hidden * attention_context(workload)
    forward = 2.0 * model.params + attention / ATTENTION_RATE
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
    samples = math.ceil(workload.samples_per_step / gang.ranks)
    micro_steps = math.ceil(samples / gang.micro_batch)
    compute = samples * _sample_compute_s(gang, workload)
    exposed = max(0.0, micro_steps * _micro_communication_s(gang, workload) - HIDDEN_SHARE * compute)
    return (compute + exposed) / gang.efficiency.training_speed


def samples_per_s(gang: Gang, workload: Workload) -> float:
    """Return trained samples per second of the whole gang."""
    return workload.samples_per_step / step_s(gang, workload)


def _sample_compute_s(gang: Gang, workload: Workload) -> float:
    flops = workload.tokens_per_sample * flops_per_token(workload)
    return flops / (gang.gpu.bf16_tflops * 1e12 * mfu(gang.efficiency, gang.ranks))


def _micro_communication_s(gang: Gang, workload: Workload) -> float:
    """Gathers of bf16 weights (forward, backward, pi_prox) and one fp32 reduce-scatter, over the ring's slowest link.

    A ring over several machines sends each byte over every machine's network once, whatever the GPUs behind it.
    """
    if gang.ranks == 1:
        return 0.0
    model = workload.model
    gathers = 2 + int(workload.recompute_prox)
    sent = (gang.ranks - 1) / gang.ranks * model.params * (model.bytes_per_param * gathers + 4.0)
    link = gang.gpu.link_gb_per_s
    if gang.nodes > 1:
        link = min(link, gang.network_gb_per_s)
    return sent / (link * NETWORK_SHARE * 1e9)
