"""Where a run begins, and on which terms its samples are made."""

from dataclasses import dataclass
from typing import Protocol

from hexcloud.admission.admission import Terms
from hexcloud.admission.staleness import StalenessLaw
from hexcloud.domain.command import NodeSpec


@dataclass(frozen=True)
class Start:
    """Where a run begins: at a checkpoint's version, in an epoch that no coordinator of the run had before."""

    epoch: int = 0
    version: int = 0
    cursor: int = 0
    """Prompts drawn before: what was seen before a recovery is not seen again."""


BEGINNING = Start()


class PromptSource(Protocol):
    """What the coordinator needs of a task."""

    @property
    def max_new_tokens(self) -> int:
        """Most tokens of a response."""
        ...

    @property
    def vocabulary_size(self) -> int:
        """Every token's id is below."""
        ...

    def prompt(self, seed: int, index: int) -> tuple[tuple[int, ...], str]:
        """Return prompt ids and the answer that the verifier wants: the same for the same seed and index."""
        ...


def terms_of(spec: NodeSpec, task: PromptSource) -> Terms:
    """Return the terms of a run's leases. `spec` is the trainer's head node's."""
    law = StalenessLaw(samples_per_step=spec.samples_per_step, group_size=spec.group_size, eta=spec.eta)
    return Terms(
        law=law,
        vocabulary=task.vocabulary_size,
        max_new_tokens=task.max_new_tokens,
        replace_zero_variance=spec.replace_zero_variance,
    )
