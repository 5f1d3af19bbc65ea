"""TrainingState: policy, optimizer and frozen reference of one rank, and all their tensors under one set of names.

`weight.NAME`, `exp_avg.NAME`, `exp_avg_sq.NAME` (Adam's moments), `reference.NAME` and `buffer.NAME`. The optimizer
works on each rank's own part: Adam treats every element alone, so a part is as good as the whole.
"""

from collections.abc import Iterable, Iterator
from math import prod

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from hexcloud.domain.training import TrainingSpec
from hexcloud.runtime.trainer_model import config_of
from hexcloud.runtime.trainer_policy import Form, Policy, blank, build_policy, local, named_tensors, settle

_BETAS = (0.9, 0.95)
_MOMENTS = ("exp_avg", "exp_avg_sq")


class TrainingState:
    """What training changes, and what it is measured against."""

    def __init__(self, form: Form, mesh: DeviceMesh | None) -> None:
        """Build without weights; `tensors` and `buffers` are to be filled in place."""
        self.form = form
        self.policy = build_policy(form, mesh)
        self.reference: Policy | None = None
        if form.settings.kl_weight:
            self.reference = build_policy(form, mesh).requires_grad_(False)
            _share_buffers(self.policy, self.reference)
        self._weights = dict(self.policy.model.named_parameters())
        self._parts = {name: torch.nn.Parameter(local(one)) for name, one in self._weights.items()}
        self.optimizer = make_optimizer(self._parts.values(), form.settings)
        for part in self._parts.values():
            moments = {kind: torch.zeros_like(part, requires_grad=False) for kind in _MOMENTS}
            self.optimizer.state[part] = {"step": torch.tensor(0.0), **moments}

    @property
    def updates(self) -> int:
        """Steps that the optimizer has made."""
        return next((int(state["step"]) for state in self.optimizer.state.values()), 0)

    @updates.setter
    def updates(self, updates: int) -> None:
        for state in self.optimizer.state.values():
            state["step"].fill_(updates)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return every tensor of the state: DTensors where it is spread over ranks, sharing storage."""
        settle(self.policy)
        found = named_tensors(self.policy)
        for name, part in self._parts.items():
            for kind in _MOMENTS:
                found[f"{kind}.{name}"] = _like(self._weights[name], self.optimizer.state[part][kind])
        if self.reference is not None:
            settle(self.reference)
            found |= {f"reference.{name}": value for name, value in self.reference.model.named_parameters()}
        return found

    def buffers(self) -> dict[str, torch.Tensor]:
        """Return this rank's parts of them, sharing storage."""
        return {name: local(tensor) for name, tensor in self.tensors().items()}

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the policy's weights whole, by Hugging Face name, one after the other. Every rank must take part."""
        settle(self.policy)
        for name, weight in self.policy.model.named_parameters():
            yield name, (weight.full_tensor() if isinstance(weight, DTensor) else weight).detach()

    def gradients(self) -> list[tuple[torch.Tensor, int]]:
        """Hand the policy's gradients to the optimizer; return each with the number of ranks that it is spread over."""
        found = []
        for weight, part in zip(self._weights.values(), self._parts.values(), strict=True):
            if weight.grad is not None:
                part.grad = local(weight.grad)
                found.append((part.grad, _spread_over(weight)))
        return found

    def forget_gradients(self) -> None:
        """Free them."""
        for one in (*self._weights.values(), *self._parts.values()):
            one.grad = None


class WholeModel:
    """The policy whole on one rank, as Hugging Face has it."""

    def __init__(self, is_wanted: bool) -> None:
        """The other ranks only help."""
        self._is_wanted = is_wanted
        self._model: PreTrainedModel | None = None

    def of(self, state: TrainingState) -> PreTrainedModel:
        """Return the policy of now; one that is not spread is itself. Every rank must take part."""
        model = state.policy.model
        if not any(isinstance(weight, DTensor) for weight in model.parameters()):
            return model
        if self._is_wanted and self._model is None:
            self._model = _empty_copy(state)
        rooms = dict(self._model.named_parameters()) if self._model is not None else {}
        for name, whole in state.weights():
            if self._is_wanted:
                rooms[name].data.copy_(whole)
        return self._model if self._model is not None else model


def _empty_copy(state: TrainingState) -> PreTrainedModel:
    """Return the model with its buffers, and with room on the CPU for its weights."""
    model = blank(state.form.config)
    model.to_empty(device="cpu")
    model.tie_weights()
    for one, other in zip(model.buffers(), state.policy.model.buffers(), strict=True):
        one.copy_(other)
    model.train()
    return model


def _share_buffers(source: Policy, target: Policy) -> None:
    for one, other in zip(source.modules(), target.modules(), strict=True):
        for name, buffer in one.named_buffers(recurse=False):
            setattr(other, name, buffer)


def make_optimizer(parts: Iterable[torch.nn.Parameter], settings: TrainingSpec) -> torch.optim.AdamW:
    """Return the optimizer of the RL steps."""
    return torch.optim.AdamW(parts, lr=settings.learning_rate, betas=_BETAS, weight_decay=settings.weight_decay)


def _spread_over(weight: torch.Tensor) -> int:
    """Return over how many ranks the elements of a tensor are spread; the others hold copies."""
    if not isinstance(weight, DTensor):
        return 1
    sizes = zip(weight.device_mesh.shape, weight.placements, strict=True)
    return prod(size for size, placement in sizes if not placement.is_replicate())


def _like(weight: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """Return a rank's part as spread as a weight is."""
    if not isinstance(weight, DTensor):
        return part
    return DTensor.from_local(
        part, weight.device_mesh, weight.placements, run_check=False, shape=weight.shape, stride=weight.stride()
    )


def state_alone(model: PreTrainedModel, settings: TrainingSpec) -> TrainingState:
    """Return the state of a trainer of one rank that begins with this model's weights, which are copied."""
    state = TrainingState(Form(config_of(model), settings), None)
    source = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, part in state.buffers().items():
        kind, _, plain = name.partition(".")
        if not kind.startswith("exp_avg"):
            part.copy_(source[plain].detach())
    return state
