"""The embedded engine's model: a Qwen2 or Llama forward pass over rows of a preallocated KV cache, on one CPU thread.

Prefill and decode are one function: each row brings some tokens and their positions, and sees every cached key at or
before its position. Rows of different length thus share a batch without padding the cache.
"""

import torch
import torch.nn.functional as F

from hexcloud.adapters.engines.embedded_weights import Layer, ModelConfig, Weights


class KvCache:
    """Keys and values of `rows` sequences of at most `config.context` tokens. Running rows are kept at the front."""

    def __init__(self, config: ModelConfig, rows: int) -> None:
        shape = (config.layers, rows, config.kv_heads, config.context, config.head_dim)
        # Zeros, not empty: masked keys still meet a softmax weight of 0, and 0 * NaN would be NaN.
        self.keys = torch.zeros(shape)
        self.values = torch.zeros(shape)

    def move(self, source: int, target: int) -> None:
        """Copy one row over another."""
        self.keys[:, target] = self.keys[:, source]
        self.values[:, target] = self.values[:, source]


class Model:
    """Weights and a cache. `forward` writes the cache and returns logits."""

    def __init__(self, config: ModelConfig, rows: int) -> None:
        self.config = config
        self.cache = KvCache(config, rows)
        self._cos, self._sin = _rope_tables(config)

    @torch.inference_mode()
    def forward(
        self,
        weights: Weights,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        first_row: int,
        only: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return logits [rows, tokens, vocab] for int64 tokens [rows, tokens] at their positions, same shape.

        `only` [rows] names one token of each row: the logits are then [rows, 1, vocab], which of a long prompt and a
        large vocabulary is most of the work.

        The rows of the cache that are meant start at `first_row`. Rows may be padded on the right: what padding
        writes lies after every real position and is overwritten before it can be seen.
        """
        rows = slice(first_row, first_row + tokens.shape[0])
        context = int(positions.max()) + 1
        mask = (torch.arange(context) <= positions[..., None])[:, None]
        hidden = F.embedding(tokens, weights.embedding)
        for index, layer in enumerate(weights.layers):
            keys, values = self.cache.keys[index, rows], self.cache.values[index, rows]
            hidden = hidden + self._attend(layer, hidden, positions, (keys, values, mask))
            normed = F.rms_norm(hidden, hidden.shape[-1:], layer.mlp_norm, self.config.norm_eps)
            gate, up = F.linear(normed, layer.gate_up).chunk(2, -1)
            hidden = hidden + F.linear(F.silu(gate) * up, layer.down)
        if only is not None:
            hidden = hidden[torch.arange(len(only)), only][:, None]
        return F.linear(F.rms_norm(hidden, hidden.shape[-1:], weights.norm, self.config.norm_eps), weights.head)

    def _attend(
        self,
        layer: Layer,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        cached: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        config = self.config
        keys, values, mask = cached
        rows, length, _ = hidden.shape
        context = mask.shape[-1]
        normed = F.rms_norm(hidden, hidden.shape[-1:], layer.attention_norm, config.norm_eps)
        qkv = F.linear(normed, layer.qkv, layer.qkv_bias).view(rows, length, -1, config.head_dim)
        turned = self._rotate(qkv[:, :, : config.heads + config.kv_heads], positions)
        row_index = torch.arange(rows)[:, None]
        keys[row_index, :, positions] = turned[:, :, config.heads :]
        values[row_index, :, positions] = qkv[:, :, config.heads + config.kv_heads :]
        attended = F.scaled_dot_product_attention(
            turned[:, :, : config.heads].transpose(1, 2),
            keys[:, :, :context],
            values[:, :, :context],
            attn_mask=mask,
            enable_gqa=config.heads != config.kv_heads,
        )
        return F.linear(attended.transpose(1, 2).reshape(rows, length, -1), layer.out)

    def _rotate(self, heads: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Apply rotary position embedding (RoFormer, arXiv 2104.09864, in the rotate-half form) to [B, T, H, D]."""
        cos, sin = self._cos[positions][:, :, None], self._sin[positions][:, :, None]
        half = self.config.head_dim // 2
        return heads * cos + torch.cat([-heads[..., half:], heads[..., :half]], -1) * sin


def _rope_tables(config: ModelConfig) -> tuple[torch.Tensor, torch.Tensor]:
    frequency = config.rope_theta ** -(torch.arange(0, config.head_dim, 2).float() / config.head_dim)
    angle = torch.outer(torch.arange(config.context).float(), frequency).repeat(1, 2)
    return angle.cos(), angle.sin()
