"""Bytes that follow from a model's published shape."""

from hexcloud.domain.model import ModelSpec


def test_weights_and_kv_cache_are_counted_in_bf16(model: ModelSpec) -> None:
    assert model.weight_bytes == 2 * 1000
    assert model.kv_bytes_per_token == 2 * 2 * 1 * 4 * 2  # K and V, layers, KV heads, head size, bytes
