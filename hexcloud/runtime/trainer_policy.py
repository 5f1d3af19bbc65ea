"""Policy: a Hugging Face causal decoder as one module that tells logprobs, on one rank or sharded over many (FSDP2).

A policy is built without weights, module by module, so no rank ever has room for more than its share and one layer;
its weights then come from whoever has them (trainer_resize.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from typing import cast

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from hexcloud.domain.errors import EngineError
from hexcloud.domain.training import LayoutKind, Precision, TrainingSpec
from hexcloud.runtime.trainer_layout import COLUMN_PARALLEL, ROW_PARALLEL
from hexcloud.runtime.trainer_pack import Pack


class Policy(nn.Module):
    """Tells what a pack's response tokens are worth to the model."""

    head_tokens = 4096
    """Logits are there for at most so many tokens at a time, as plans count them; for more they are computed again in
    the backward pass."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    @property
    def layers(self) -> nn.ModuleList:
        """The decoder's layers."""
        return cast(nn.ModuleList, self.model.base_model.layers)

    def forward(self, pack: Pack, with_entropy: bool = True) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return logprob and entropy [tokens] of every response token, fp32, nats. The entropy has no gradient; without
        it two passes over tokens times vocabulary are saved."""
        hidden = self.model.base_model(
            input_ids=pack.ids, position_ids=pack.positions, attention_mask=pack.mask, use_cache=False
        ).last_hidden_state.flatten(0, 1)[pack.places]
        if len(hidden) <= self.head_tokens:
            return self._told(hidden, pack.targets, with_entropy)
        parts = zip(torch.split(hidden, self.head_tokens), torch.split(pack.targets, self.head_tokens), strict=True)
        told = [checkpoint(self._told, *part, with_entropy, use_reentrant=False) for part in parts]
        logprobs = torch.cat([one for one, _ in told])
        return logprobs, torch.cat([one for _, one in told]) if with_entropy else None

    def _told(
        self, hidden: torch.Tensor, targets: torch.Tensor, with_entropy: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        logits: torch.Tensor = self.model.get_output_embeddings()(hidden)
        every = logits.float().log_softmax(-1)
        # A sum over one column: FSDP2 wants no view.
        return every.gather(1, targets[:, None]).sum(1), _entropy(every) if with_entropy else None


@torch.no_grad()
def _entropy(logprobs: torch.Tensor) -> torch.Tensor:
    return -(logprobs.exp() * logprobs).sum(-1)


@dataclass(frozen=True)
class Form:
    """How a policy is built. The settings name the layout of its ranks; without one it is `fsdp`."""

    config: dict[str, object]
    """What `config.json` says."""
    settings: TrainingSpec
    device: str = "cpu"


def build_policy(form: Form, mesh: DeviceMesh | None) -> Policy:
    """Build a policy whose weights are yet to come. `mesh` is that of its Ranks.

    Raises EngineError for a model that this trainer does not compute exactly.
    """
    policy = Policy(blank(form.config))
    if form.settings.activation_checkpointing:
        policy.model.gradient_checkpointing_enable({"use_reentrant": False})
    if form.settings.layout is LayoutKind.TP and mesh is not None:
        require_cut(policy.model, mesh["ranks"].size())
    for layer in policy.layers:
        layer.to_empty(device=form.device)
        _spread(layer, form.settings, mesh)
    for module in _outside(policy):
        module.to_empty(device=form.device, recurse=False)
    policy.model.tie_weights()
    _shard(policy, form.settings, mesh)
    return policy.train()


def blank(config: dict[str, object]) -> PreTrainedModel:
    """Return the model of a configuration without storage and without dropout. Never runs code that came with it."""
    rest = {name: value for name, value in config.items() if name != "model_type"}
    known = AutoConfig.for_model(str(config["model_type"]), **rest)
    for name in known.to_dict():
        if "dropout" in name or name.endswith("pdrop"):
            setattr(known, name, 0.0)
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(known, trust_remote_code=False)
    return model


def require_exact(model: PreTrainedModel) -> None:
    """Raise EngineError unless hidden states and output embeddings are all there is to the model's logits."""
    kinds = set(getattr(model.config, "layer_types", None) or [_attention(model)])
    if kinds != {"full_attention"}:
        raise EngineError(
            f"{model.config.model_type}: layers with {', '.join(sorted(kinds))} are not trained; full only"
        )
    ids = torch.tensor([[0, 1, 2]])
    with torch.no_grad():
        hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        if not torch.equal(model.get_output_embeddings()(hidden), model(input_ids=ids, use_cache=False).logits):
            raise EngineError(f"{model.config.model_type}: logits are more than a projection; not trained")


def _attention(model: PreTrainedModel) -> str:
    """Return the kind of attention in all layers of a model that tells none for each."""
    slides = getattr(model.config, "sliding_window", None) is not None
    return "sliding_attention" if slides and getattr(model.config, "use_sliding_window", True) else "full_attention"


def require_cut(model: PreTrainedModel, ranks: int) -> None:
    """Raise EngineError unless tensor parallelism can cut the model over the ranks of a machine. Needs no weights."""
    for layer in Policy(model).layers:
        dict(_styles(layer))
    heads, config = model.config.num_attention_heads, model.config
    counts = (heads, getattr(config, "num_key_value_heads", None) or heads, config.intermediate_size)
    if any(count % ranks for count in counts):
        most = gcd(*counts)
        fitting = ", ".join(str(few) for few in range(1, most + 1) if most % few == 0)
        raise EngineError(
            f"layout tp: {counts[0]} heads, {counts[1]} KV heads and an intermediate_size of {counts[2]} do not all "
            f"divide by {ranks} ranks a machine; ranks that divide them: {fitting}"
        )


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return what this rank has of a tensor, sharing its storage."""
    return tensor.to_local().detach() if isinstance(tensor, DTensor) else tensor.detach()


def named_tensors(policy: Policy) -> dict[str, torch.Tensor]:
    """Return weights and buffers by name; a tied weight once, under its first name."""
    weights = {f"weight.{name}": value for name, value in policy.model.named_parameters()}
    return weights | {f"buffer.{name}": value for name, value in policy.model.named_buffers()}


def settle(policy: Policy) -> None:
    """Let each rank hold its part only: after a forward pass without a backward one FSDP2 keeps the root whole."""
    if isinstance(policy, FSDPModule):
        policy.reshard()


def only_last_syncs(policy: Policy, is_last: bool) -> None:
    """Let each pass scatter its gradients, of which a rank has room for its share only, and machines with copies of
    the state sum theirs with the last pass."""
    if isinstance(policy, FSDPModule):
        policy.set_requires_all_reduce(is_last)


def _spread(layer: nn.Module, settings: TrainingSpec, mesh: DeviceMesh | None) -> None:
    if settings.layout is LayoutKind.TP and mesh is not None:
        parallelize_module(layer, mesh["ranks"], dict(_styles(layer)))
    _shard(layer, settings, mesh)


def _styles(layer: nn.Module) -> Iterator[tuple[str, ParallelStyle]]:
    for name, module in layer.named_modules():
        kind = name.rpartition(".")[2]
        if kind in COLUMN_PARALLEL:
            yield name, ColwiseParallel()
        elif kind in ROW_PARALLEL:
            yield name, RowwiseParallel()
        elif next(module.parameters(recurse=False), None) is not None and "layernorm" not in kind:
            raise EngineError(f"layout tp: {name} of this model would be computed wrongly; use fsdp or hsdp")


def _shard(module: nn.Module, settings: TrainingSpec, mesh: DeviceMesh | None) -> None:
    """Shard one module's own share; one rank in fp32 has nothing to shard and nothing to convert."""
    if mesh is None:
        return
    is_bf16 = settings.precision is Precision.BF16
    precision = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if is_bf16 else None, reduce_dtype=torch.float32 if is_bf16 else None
    )
    fully_shard(module, mesh=_own(mesh, settings.layout), mp_policy=precision)


def _own(mesh: DeviceMesh, kind: LayoutKind | None) -> DeviceMesh:
    """Return the part of the mesh over which FSDP2 works: of two dimensions it copies over the first."""
    return mesh["machines"] if kind is LayoutKind.TP else mesh


def _outside(policy: Policy) -> Iterator[nn.Module]:
    inside = {module for layer in policy.layers for module in layer.modules()}
    return (module for module in policy.modules() if module not in inside)
