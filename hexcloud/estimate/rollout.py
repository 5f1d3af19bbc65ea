"""How fast a rollout replica makes samples, and how long one sample takes.

A decode step reads the weights once and the KV cache of every running sample, so it is bound by memory bandwidth:
`t_step = (W/tp + b*c*k') / (bandwidth*e_m) + 2*P*b / (tp*flops*e_c) + t_tp(b)`. Without the KV term the H20 comes out
at half the speed of an H800, while AReaL-Hex (arXiv 2511.00796, table 1) implies 0.95.

A replica over several machines is one engine whose tensor parallelism crosses their network (SGLang's `--nnodes`):
every all-reduce, of decode steps and of prompts, goes round all GPUs in one ring that leaves each machine once.
"""

import math
from dataclasses import dataclass

from hexcloud.domain.calibration import Efficiency
from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.workload import Workload
from hexcloud.estimate.memory import kv_bytes_per_gpu
from hexcloud.estimate.traffic import NETWORK_SHARE

P95_NORMAL = 1.6449
"""95th percentile of the standard normal distribution."""
ALL_REDUCES_PER_LAYER = 2
ALL_REDUCE_LATENCY_S = 15e-6
"""Small NCCL all-reduce inside a node: 10 us over NVLink to 20 us over PCIe (general knowledge, not re-read)."""
STEP_OVERHEAD_S = 0.001
"""Sampling and scheduling per decode step that an overlap scheduler does not hide (general knowledge, not re-read)."""
RELOAD_GB_PER_S = 5.0
"""Host to device while an engine takes new weights: a third of PCIe 4 x16, as tensors go one by one (estimate)."""
RELOAD_FIXED_S = 0.5
"""Abort or retract, flush the cache, resume (estimate)."""

HAND_ON_GB_PER_S = 0.4
"""From the head of a replica to all its other machines together, whatever their network: files are read, hashed, and
written anew by Python. The least of 0.4 to 0.8 that were measured on loopback on 2 cores, which sent and received."""


@dataclass(frozen=True)
class Replica:
    """One engine on `tp` GPUs of one type with `batch` running samples."""

    gpu: GpuSpec
    efficiency: Efficiency
    tp: int
    batch: int
    machines: int = 1
    network_gb_per_s: float = math.inf
    """Between the machines: of one of them, one way, 1e9 bytes/s."""
    latency_s: float = 0.0
    """Between the machines, one way."""


def decode_step_s(replica: Replica, workload: Workload) -> float:
    """Return seconds of one decode step, in which each running sample gains a token."""
    model, gpu, tp, batch = workload.model, replica.gpu, replica.tp, replica.batch
    cache_bytes = batch * workload.mean_context * kv_bytes_per_gpu(model, tp)
    bandwidth = gpu.hbm_gb_per_s * 1e9 * replica.efficiency.bandwidth
    reading = (model.weight_bytes / tp + cache_bytes) / bandwidth
    computing = 2.0 * model.params * batch / _flops(replica)
    step_s = reading + computing + _tensor_parallel_s(replica, workload) + STEP_OVERHEAD_S
    return step_s / replica.efficiency.rollout_speed


def prefill_s(replica: Replica, workload: Workload) -> float:
    """Return seconds one prompt takes; a group's prompts are not shared, as updates flush the cache.

    Inside a machine that is compute; over a network the sums of activations show too.
    """
    computing = 2.0 * workload.model.params * workload.prompt_tokens / _flops(replica)
    summing = _all_reduces_s(replica, workload, workload.prompt_tokens) if replica.machines > 1 else 0.0
    return (computing + summing) / replica.efficiency.rollout_speed


def samples_per_s(replica: Replica, workload: Workload) -> float:
    """Return finished samples per second of a replica that is always full."""
    decoding = workload.response_tokens * decode_step_s(replica, workload) / replica.batch
    return 1.0 / (decoding + prefill_s(replica, workload))


def generation_p95_s(replica: Replica, workload: Workload) -> float:
    """Return the 95th percentile of the time from grant to finished sample, prefills of others included."""
    token_s = replica.batch / samples_per_s(replica, workload) / workload.response_tokens
    return prefill_s(replica, workload) + response_p95_tokens(workload) * token_s


def response_p95_tokens(workload: Workload) -> float:
    """Return the 95th percentile of the response length: log-normal with the workload's mean and variation, capped."""
    variance = math.log1p(workload.response_cv**2)
    log_mean = math.log(workload.response_tokens) - variance / 2.0
    return min(float(workload.max_response_tokens), math.exp(log_mean + P95_NORMAL * math.sqrt(variance)))


def reload_s(workload: Workload, tp: int) -> float:
    """Return seconds an engine stands still while it takes a new version that is already on its machine."""
    return RELOAD_FIXED_S + workload.version_bytes / tp / (RELOAD_GB_PER_S * 1e9)


def pause_share(workload: Workload, tp: int, step_s: float) -> float:
    """Return the share of time engines stand still for weights when a version comes every `step_s` seconds."""
    return min(1.0, reload_s(workload, tp) / step_s)


def _flops(replica: Replica) -> float:
    return replica.tp * replica.gpu.bf16_tflops * 1e12 * replica.efficiency.compute


def _tensor_parallel_s(replica: Replica, workload: Workload) -> float:
    """All-reduces of one activation per sample."""
    return 0.0 if replica.tp == 1 else _all_reduces_s(replica, workload, replica.batch)


def _all_reduces_s(replica: Replica, workload: Workload, tokens: float) -> float:
    """Ring all-reduce of one activation per token, twice per layer; each half of it crosses every network once."""
    model, gb_per_s, latency_s = workload.model, replica.gpu.link_gb_per_s, ALL_REDUCE_LATENCY_S
    if replica.machines > 1:
        gb_per_s = min(gb_per_s, replica.network_gb_per_s * NETWORK_SHARE)
        latency_s += 2.0 * (replica.machines - 1) * replica.latency_s
    sent = 2.0 * (replica.tp - 1) / replica.tp * tokens * model.hidden * model.bytes_per_param
    return ALL_REDUCES_PER_LAYER * model.layers * (latency_s + sent / (gb_per_s * 1e9))


def spread_s(replica: Replica, workload: Workload) -> float:
    """Return seconds in which the first machine of a replica hands a version on to the others, all at once."""
    gb_per_s = min(replica.network_gb_per_s, HAND_ON_GB_PER_S)
    return (replica.machines - 1) * workload.version_bytes / (gb_per_s * 1e9)
