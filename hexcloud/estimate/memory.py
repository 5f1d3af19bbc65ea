"""How much GPU memory rollout and training take: largest batch of a replica, largest pass of a rank.

Sources: KV cache and weights follow from the model's published shape. Training states as AReaL keeps them
(arXiv 2505.24298: half-precision weights, fp32 gradients, Adam): 2 + 4 + 4 + 4 + 4 bytes per parameter. Activations as
in "Reducing Activation Recomputation in Large Transformer Models" (arXiv 2205.05198): 2 bytes per token, layer and
hidden unit are kept with checkpointing and 34 without, 24 of which tensor parallelism cuts. On top comes the larger
of two peaks, which do not coincide: the loss, with logits and the head's gradient, and the largest layer, worked
through again with its gradient.

What is known to fit and to run out, and how this judges it: benchmarks/estimator_error.py.
"""

from hexcloud.domain.formation import Formation
from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.model import ModelSpec
from hexcloud.domain.workload import Workload

GIB = 2.0**30
USABLE_SHARE = 0.90
"""What is left beside the CUDA context, graphs and workspace; SGLang's mem_fraction_static is of that size."""
USABLE_TRAINING_SHARE = 0.95
"""The same for a trainer, which keeps no graphs and workspaces of an engine: what its allocator does not lose between
blocks. MPT-30B at 8,192 tokens fills 8 H100 to within a per cent of it (mosaicml/llm-foundry, benchmarking README
@061f2c7), and Qwen2.5-32B at 1,024 runs out of 8 A100 by less than that (hiyouga/LlamaFactory#6999)."""
OUTSIDE_GIB = 1.0
"""CUDA context and NCCL buffers of a trainer, outside its allocator and as large on any GPU: 0.34 to 0.43 GiB in an
engine of four (vllm-project/vllm#16570), more channels in a gang. Llama-3-8B runs out of 8 x 24 GB by this
(hiyouga/LlamaFactory#5977)."""
KV_HEADROOM = 1.2
"""Running samples are not all at their mean length at once; without room the engine retracts them."""
STATE_BYTES_PER_PARAM = 18.0
_REFERENCE_BYTES_PER_PARAM = 4.0
"""A reference is kept in fp32, as the trained weights are."""
PASS_TOKENS_PLANNED = (2048, 4096, 8192, 16384, 32768)
"""Sizes of passes that plans weigh. Large ones gather weights less often; but all ranks wait for the fullest one, and
large passes are less alike."""
_INPUT_BYTES_PER_UNIT = 2.0
"""Per token and hidden unit of a layer in bf16: what checkpointing keeps, whole on every rank."""
_WHOLE_BYTES_PER_UNIT, _CUT_BYTES_PER_UNIT = 10.0, 24.0
"""The same for all that a layer's backward pass needs: norms, inputs and residuals; and what lies between the two
halves of a product, of which each rank of tensor parallelism has its part."""
_FP32_BYTES = 4.0
"""Per vocabulary entry and token come logits, their fp32 log-probabilities, and a gradient of each."""
_LOGIT_CHUNK_TOKENS = 4096
"""The loss is taken over at most this many positions at a time."""
_GRADIENT_BYTES = 4.0
"""Per parameter of the unit at work: its whole gradient in bf16, and the copy that is scattered."""
_BF16_BYTES = 2.0
_PREFETCHED_UNITS = 2
"""Layers that FSDP holds whole: the one at work and the next."""


def usable_bytes(gpu: GpuSpec) -> float:
    """Return bytes of one GPU that an engine's weights and cache may fill."""
    return gpu.hbm_gib * GIB * USABLE_SHARE


def usable_training_bytes(gpu: GpuSpec) -> float:
    """Return bytes of one GPU that a trainer's states and activations may fill."""
    return (gpu.hbm_gib * USABLE_TRAINING_SHARE - OUTSIDE_GIB) * GIB


def kv_bytes_per_gpu(model: ModelSpec, tp: int) -> float:
    """Return KV bytes of one token on one of `tp` GPUs; beyond kv_heads the heads are replicated."""
    return model.kv_bytes_per_token / min(tp, model.kv_heads)


def largest_batch(workload: Workload, gpu: GpuSpec, tp: int) -> int:
    """Return how many samples a replica on `tp` GPUs can run at once; 0 when one longest sample does not fit."""
    model = workload.model
    room = usable_bytes(gpu) - model.weight_bytes / tp
    tokens = room / kv_bytes_per_gpu(model, tp)
    if tokens < workload.longest_tokens:
        return 0
    return max(1, int(tokens / (workload.mean_context * KV_HEADROOM)))


def training_bytes(workload: Workload, formation: Formation, tokens: float) -> float:
    """Return bytes on one rank of a formation in a pass of `tokens`, padding included."""
    model = workload.model
    kept_per_unit = _INPUT_BYTES_PER_UNIT if workload.activation_recompute else _layer_bytes_per_unit(formation)
    kept = tokens * model.hidden * kept_per_unit * _width(workload) * model.layers
    peak = max(_loss_bytes(workload, formation, tokens), _layer_bytes(workload, formation, tokens))
    return _state_bytes(workload, formation) + kept + peak


def pass_sizes(workload: Workload, gpu: GpuSpec, formation: Formation) -> tuple[int, ...]:
    """Return tokens that passes of a rank may have: the user's number, else what plans weigh, as far as it fits.

    A sample that is longer is a pass of its own, so room for the longest is always needed.
    """
    usable, asked = usable_training_bytes(gpu), workload.micro_batch_tokens
    return tuple(
        tokens
        for tokens in (PASS_TOKENS_PLANNED if asked is None else (asked,))
        if training_bytes(workload, formation, max(tokens, workload.longest_tokens)) <= usable
    )


def _width(workload: Workload) -> float:
    """Return how many times as wide as bf16 the trainer computes."""
    return workload.published_bytes_per_param / _BF16_BYTES


def _state_bytes(workload: Workload, formation: Formation) -> float:
    """Return bytes of weights, gradients and moments, and of a reference, whose embeddings and head stay whole."""
    model = workload.model
    own = params_to_share(model, formation.tensor) / formation.shards
    if not workload.keeps_reference:
        return STATE_BYTES_PER_PARAM * own
    outside = model.params - model.layers * layer_params(model)
    whole = workload.published_bytes_per_param * outside if formation.shards > 1 else 0.0
    return (STATE_BYTES_PER_PARAM + _REFERENCE_BYTES_PER_PARAM) * own + whole


def _loss_bytes(workload: Workload, formation: Formation, tokens: float) -> float:
    """Return bytes that the head and the loss take at their peak; who shares no state gathers and scatters nothing."""
    model, wide = workload.model, workload.published_bytes_per_param
    logits = min(tokens, _LOGIT_CHUNK_TOKENS) * model.vocab * 2 * (wide + _FP32_BYTES)
    gathered = (wide + _GRADIENT_BYTES) if formation.shards > 1 else 0.0
    return logits + gathered * model.vocab * model.hidden


def _layer_bytes(workload: Workload, formation: Formation, tokens: float) -> float:
    """Return bytes that the backward pass of one layer takes at its peak, its recomputed activations included."""
    model, wide = workload.model, workload.published_bytes_per_param
    working = _layer_bytes_per_unit(formation) * _width(workload) if workload.activation_recompute else 0.0
    gathered = (_PREFETCHED_UNITS * wide + _GRADIENT_BYTES) if formation.shards > 1 else 0.0
    return tokens * model.hidden * working + gathered * layer_params(model) / formation.tensor


def _layer_bytes_per_unit(formation: Formation) -> float:
    return _WHOLE_BYTES_PER_UNIT + _CUT_BYTES_PER_UNIT / formation.tensor


def params_to_share(model: ModelSpec, tensor: int) -> float:
    """Return the parameters that a rank works with, and shares with others by FSDP.

    Tensor parallelism cuts the layers, not embeddings and the head. Without it these are all, to the last bit.
    """
    if tensor == 1:
        return float(model.params)
    layers = model.layers * layer_params(model)
    return layers / tensor + model.params - layers


def layer_params(model: ModelSpec) -> float:
    """Return parameters of one layer: what FSDP gathers whole."""
    return max(0.0, model.params - 2.0 * model.vocab * model.hidden) / model.layers
