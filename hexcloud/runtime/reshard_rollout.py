"""The layout of a rollout engine: Hugging Face names, tensor parallel inside each replica, projections fused or not.

Column-parallel weights are cut along dimension 0, row-parallel ones along dimension 1, as SGLang and vLLM cut them.
Heads need not divide evenly; a rank holds the KV heads that its query heads read, so some are held by several ranks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hexcloud.runtime.reshard_layout import Holding, Layout, Shard, TensorSpec, block, interval, world

_FUSED = {
    "q_proj": "qkv_proj",
    "k_proj": "qkv_proj",
    "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
}
_ROWS = {"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "embed_tokens", "lm_head"}
_COLUMNS = {"o_proj", "down_proj"}


@dataclass(frozen=True)
class RolloutForm:
    """What an engine does with the weights of a model."""

    query_heads: int
    kv_heads: int
    is_fused: bool = True
    vocab_multiple: int = 64
    """Rows of embedding and head are padded to a multiple of this and of tp."""


def rollout(
    tensors: Mapping[str, TensorSpec], size: int, replicas: Sequence[Sequence[int]], form: RolloutForm
) -> Layout:
    """Return the layout of replicas, each a row of ranks in the order of their tensor-parallel place.

    Tensors whose names are not those of a dense decoder are copied to every rank.
    """
    members = {
        rank: _shard(tensors, _Place(place, len(replica), form))
        for replica in replicas
        for place, rank in enumerate(replica)
    }
    return world(tensors, size, members)


@dataclass(frozen=True)
class _Place:
    index: int
    tp: int
    form: RolloutForm

    def span(self, module: str, length: int) -> tuple[int, int]:
        """Return [low, high) of a dimension of `length` for a module's kind."""
        if module in {"q_proj", "o_proj"}:
            low, high = self._query()
            unit = length // self.form.query_heads
        elif module in {"k_proj", "v_proj"}:
            per_kv = self.form.query_heads // self.form.kv_heads
            first, last = self._query()
            low, high = first // per_kv, -(-last // per_kv)
            unit = length // self.form.kv_heads
        elif module in {"embed_tokens", "lm_head"}:
            step = self.vocab_rows(length)
            return min(self.index * step, length), min((self.index + 1) * step, length)
        else:
            low, high, unit = *_even(length, self.index, self.tp), 1
        return low * unit, high * unit

    def vocab_rows(self, vocab: int) -> int:
        """Return rows of each rank's embedding, padding included."""
        padded = -(-vocab // self.form.vocab_multiple) * self.form.vocab_multiple
        return -(-padded // self.tp)

    def _query(self) -> tuple[int, int]:
        return _even(self.form.query_heads, self.index, self.tp)


@dataclass
class _Draft:
    """Buffers as they grow: fused ones row block by row block."""

    buffers: dict[str, tuple[int, ...]] = field(default_factory=dict)
    holdings: dict[str, Holding] = field(default_factory=dict)

    def append(self, buffer: str, name: str, spec: TensorSpec, span: tuple[int, int]) -> None:
        rows, width = span[1] - span[0], spec.shape[1:]
        before = self.buffers.get(buffer, (0, *width))[0]
        self.buffers[buffer] = (before + rows, *width)
        if rows:
            row = spec.size // spec.shape[0]
            self.holdings[name] = interval(buffer, span[0] * row, span[1] * row, before * row)


def _shard(tensors: Mapping[str, TensorSpec], place: _Place) -> Shard:
    draft = _Draft()
    order = {module: index for index, module in enumerate(_FUSED)}
    # A fused buffer is q, k, v or gate, up, whatever the order of the names.
    for name in sorted(tensors, key=lambda name: order.get(_module(name), 0)):
        spec, module = tensors[name], _module(name)
        if module in _ROWS:
            is_fused = place.form.is_fused and module in _FUSED
            buffer = name.replace(module, _FUSED[module]) if is_fused else name
            draft.append(buffer, name, spec, place.span(module, spec.shape[0]))
            if module in {"embed_tokens", "lm_head"}:
                draft.buffers[buffer] = (place.vocab_rows(spec.shape[0]), *spec.shape[1:])
        elif module in _COLUMNS and len(spec.shape) == 2:
            span = place.span(module, spec.shape[1])
            draft.buffers[name] = (spec.shape[0], span[1] - span[0])
            if span[0] < span[1]:
                draft.holdings[name] = block(name, spec.shape, 1, span)
        else:
            draft.buffers[name], draft.holdings[name] = spec.shape, interval(name, 0, spec.size)
    return Shard(draft.buffers, draft.holdings)


def _module(name: str) -> str:
    """Return `q_proj` of `model.layers.0.self_attn.q_proj.weight`."""
    return name.split(".")[-2] if "." in name else ""


def _even(length: int, index: int, count: int) -> tuple[int, int]:
    return length * index // count, length * (index + 1) // count
