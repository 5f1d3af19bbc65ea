"""ModelSpec: facts about one LLM, from `catalogs/models.yaml`."""

from pydantic import Field

from hexcloud.domain.frozen import Frozen


class ModelSpec(Frozen):
    """A dense decoder-only transformer, as its published configuration states it."""

    name: str
    params: int = Field(gt=0)
    """Parameters, embeddings included."""
    layers: int = Field(gt=0)
    hidden: int = Field(gt=0)
    heads: int = Field(gt=0)
    kv_heads: int = Field(gt=0)
    head_dim: int = Field(gt=0)
    intermediate: int = Field(gt=0)
    vocab: int = Field(gt=0)
    bytes_per_param: int = 2
    """bf16 weights and KV cache."""
    source: str

    @property
    def weight_bytes(self) -> float:
        """Bytes of one copy of the weights."""
        return float(self.params * self.bytes_per_param)

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes of KV cache one token takes over all layers and KV heads."""
        return float(2 * self.layers * self.kv_heads * self.head_dim * self.bytes_per_param)
