"""The embedded engine's files: a Qwen2's or Llama's `config.json` and `model.safetensors`, read without transformers.

Importing transformers would cost 2.7 s and 115 MB per engine (measured, transformers 5.24). Weights come as a whole
or not at all, so an engine is never between two versions.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from hexcloud.domain.errors import EngineError

_DEFAULT_ROPE_THETA = 10_000.0
"""What transformers assumes for both when the configuration names none."""
_ATTENTION_BIAS = {"qwen2": True, "llama": False}
"""Model types that are served -> whether queries, keys and values have a bias."""


@dataclass(frozen=True)
class ModelConfig:
    """The part of a `config.json` that a forward pass needs."""

    vocab: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    rope_theta: float
    tied: bool
    biased: bool
    """Have queries, keys and values a bias?"""
    context: int
    """Most tokens of one sequence, prompt included."""
    eos_ids: frozenset[int]


def read_config(directory: Path) -> ModelConfig:
    """Read `config.json`, or else what hexcloud's own `model.safetensors` says of itself (metadata `config`).

    Raises EngineError when there is neither, or one of a kind that is not served.
    """
    path = directory / "config.json"
    try:
        raw = json.loads(path.read_text() if path.exists() else _inner_config(directory))
        if reason := _unserved(raw):
            raise EngineError(f"{path}: {reason}; the embedded engine serves plain {' and '.join(_ATTENTION_BIAS)}")
        return _config(raw)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise EngineError(f"{directory} has no usable model configuration: {error!r}") from error


def _unserved(raw: dict[str, object]) -> str:
    """Say what the forward pass does not know of a model; empty when it knows all."""
    if raw["model_type"] not in _ATTENTION_BIAS:
        return f"model_type is {raw['model_type']!r}"
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, dict) else rope
    if kind != "default":
        return f"its rotary embedding is scaled ({kind})"
    if any(raw.get(name) for name in ("use_sliding_window", "attention_bias", "mlp_bias")):
        return "it has a sliding window or biases of its own"
    return ""


def _inner_config(directory: Path) -> str:
    with safe_open(directory / "model.safetensors", framework="pt") as tensors:
        return str(tensors.metadata()["config"])


def _config(raw: dict[str, object]) -> ModelConfig:
    def number(key: str, default: float | None = None) -> float:
        value = raw.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, int | float):
            raise KeyError(key)
        return value

    rope = raw.get("rope_parameters") or {}  # transformers 5; before that rope_theta stood at the top
    theta = rope.get("rope_theta") if isinstance(rope, dict) else None
    eos = raw.get("eos_token_id")
    heads, hidden = int(number("num_attention_heads")), int(number("hidden_size"))
    return ModelConfig(
        vocab=int(number("vocab_size")),
        hidden=hidden,
        intermediate=int(number("intermediate_size")),
        layers=int(number("num_hidden_layers")),
        heads=heads,
        kv_heads=int(number("num_key_value_heads", heads)),
        head_dim=int(number("head_dim", hidden // heads)),
        norm_eps=number("rms_norm_eps", 1e-6),
        rope_theta=float(theta or number("rope_theta", _DEFAULT_ROPE_THETA)),
        tied=bool(raw.get("tie_word_embeddings", False)),
        biased=_ATTENTION_BIAS[str(raw["model_type"])],
        context=int(number("max_position_embeddings")),
        eos_ids=frozenset(eos if isinstance(eos, list) else [eos] if isinstance(eos, int) else []),
    )


@dataclass(frozen=True)
class Layer:
    """One decoder layer; q, k, v and gate, up are fused: fewer, larger products are 2x faster at this size."""

    attention_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    out: torch.Tensor
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


@dataclass(frozen=True)
class Weights:
    """All parameters in fp32, in the form that the forward pass wants."""

    embedding: torch.Tensor
    layers: tuple[Layer, ...]
    norm: torch.Tensor
    head: torch.Tensor


def read_weights(directory: Path, config: ModelConfig) -> Weights:
    """Read `model.safetensors`. Raises EngineError when a tensor is missing or has another shape."""
    path = directory / "model.safetensors"
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise EngineError(f"{path} cannot be read: {error}") from error

    def take(name: str, *shape: int) -> torch.Tensor:
        if name not in tensors:
            raise EngineError(f"{path} has no tensor {name}")
        if tuple(tensors[name].shape) != shape:
            raise EngineError(f"{path}: {name} is {tuple(tensors[name].shape)}, the model wants {shape}")
        return tensors[name].float()

    embedding = take("model.embed_tokens.weight", config.vocab, config.hidden)
    return Weights(
        embedding=embedding,
        layers=tuple(_read_layer(f"model.layers.{i}", config, take) for i in range(config.layers)),
        norm=take("model.norm.weight", config.hidden),
        head=embedding if config.tied else take("lm_head.weight", config.vocab, config.hidden),
    )


def _read_layer(name: str, config: ModelConfig, take: Callable[..., torch.Tensor]) -> Layer:
    hidden, inner = config.hidden, config.intermediate
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    attention = f"{name}.self_attn"
    sizes = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
    return Layer(
        attention_norm=take(f"{name}.input_layernorm.weight", hidden),
        qkv=torch.cat([take(f"{attention}.{key}.weight", size, hidden) for key, size in sizes.items()]),
        qkv_bias=torch.cat([take(f"{attention}.{key}.bias", size) for key, size in sizes.items()])
        if config.biased
        else None,
        out=take(f"{attention}.o_proj.weight", hidden, queries),
        mlp_norm=take(f"{name}.post_attention_layernorm.weight", hidden),
        gate_up=torch.cat([take(f"{name}.mlp.{key}_proj.weight", inner, hidden) for key in ("gate", "up")]),
        down=take(f"{name}.mlp.down_proj.weight", hidden, inner),
    )
