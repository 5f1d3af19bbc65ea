"""How much GPU memory rollout and training take: largest batch of a replica, largest micro-batch of a rank.

Sources: KV cache and weights follow from the model's published shape. Training states as AReaL keeps them
(arXiv 2505.24298: half-precision weights, fp32 gradients, Adam): 2 + 4 + 4 + 4 + 4 bytes per parameter. Activations as
in "Reducing Activation Recomputation in Large Transformer Models" (arXiv 2205.05198): 2 bytes per token, layer and
hidden unit are kept with checkpointing and 34 without.
"""

from bisect import bisect_right

from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.model import ModelSpec
from hexcloud.domain.workload import Workload

GIB = 2.0**30
USABLE_SHARE = 0.90
"""What is left beside the CUDA context, graphs and workspace; SGLang's mem_fraction_static is of that size."""
USABLE_TRAINING_SHARE = 0.94
"""The same for a trainer, which keeps no graphs and workspaces of an engine: MPT-30B at 8,192 tokens on 8 H100 trains
at 0.92 of the memory by the sum below (mosaicml/llm-foundry, benchmarking README @061f2c7)."""
KV_HEADROOM = 1.2
"""Running samples are not all at their mean length at once; without room the engine retracts them."""
STATE_BYTES_PER_PARAM = 18.0
_KEPT_BYTES_PER_UNIT = {True: 2.0, False: 34.0}
_LAYER_WORKING_BYTES_PER_UNIT = 34.0
_LOGIT_BYTES = 6.0
"""bf16 logits and an fp32 copy for the softmax, per vocabulary entry and token."""
_LOGIT_CHUNK_TOKENS = 4096
"""The loss is taken over at most this many positions at a time."""


def usable_bytes(gpu: GpuSpec) -> float:
    """Return bytes of one GPU that an engine's weights and cache may fill."""
    return gpu.hbm_gib * GIB * USABLE_SHARE


def usable_training_bytes(gpu: GpuSpec) -> float:
    """Return bytes of one GPU that a trainer's states and activations may fill."""
    return gpu.hbm_gib * GIB * USABLE_TRAINING_SHARE


def kv_bytes_per_gpu(model: ModelSpec, tp: int) -> float:
    """Return KV bytes of one token on one of `tp` GPUs; beyond kv_heads the heads are replicated."""
    return model.kv_bytes_per_token / min(tp, model.kv_heads)


def largest_batch(workload: Workload, gpu: GpuSpec, tp: int) -> int:
    """Return how many samples a replica on `tp` GPUs can run at once; 0 when one longest sample does not fit."""
    model = workload.model
    room = usable_bytes(gpu) - model.weight_bytes / tp
    tokens = room / kv_bytes_per_gpu(model, tp)
    longest = workload.prompt_tokens + workload.max_response_tokens
    if tokens < longest:
        return 0
    return max(1, int(tokens / (workload.mean_context * KV_HEADROOM)))


def training_bytes(workload: Workload, ranks: int, micro_batch: int) -> float:
    """Return bytes on one of `ranks` fully sharded ranks that hold `micro_batch` samples, one of them the longest."""
    model = workload.model
    longest = workload.prompt_tokens + workload.max_response_tokens
    tokens = longest + (micro_batch - 1) * workload.tokens_per_sample
    states = STATE_BYTES_PER_PARAM * model.params / ranks
    gathered = 2.0 * _largest_block_params(model) * model.bytes_per_param if ranks > 1 else 0.0
    kept = _KEPT_BYTES_PER_UNIT[workload.activation_recompute] * model.layers
    working = _LAYER_WORKING_BYTES_PER_UNIT if workload.activation_recompute else 0.0
    activations = tokens * model.hidden * (kept + working)
    logits = min(tokens, _LOGIT_CHUNK_TOKENS) * model.vocab * _LOGIT_BYTES
    return states + gathered + activations + logits


def largest_micro_batch(workload: Workload, gpu: GpuSpec, ranks: int, limit: int) -> int:
    """Return the most samples per forward pass that fit one rank, at most `limit`; 0 when not even one fits."""
    usable = usable_training_bytes(gpu)
    if training_bytes(workload, ranks, limit) <= usable:
        return limit
    return bisect_right(
        range(1, limit + 1), usable, key=lambda micro_batch: training_bytes(workload, ranks, micro_batch)
    )


def _largest_block_params(model: ModelSpec) -> float:
    """Parameters of the largest unit that FSDP gathers whole: a layer, or the embedding."""
    embedding = float(model.vocab * model.hidden)
    layers = max(0.0, model.params - 2 * embedding) / model.layers
    return max(embedding, layers)
