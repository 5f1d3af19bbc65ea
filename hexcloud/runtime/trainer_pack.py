"""Packs: samples laid side by side into rows of a forward pass (domain/packing). No sample sees another.

A pack is a rectangle. Long samples open its rows and shorter ones fill what is left; a mask keeps them apart and each
counts its positions from 0, so every token gets the logprob it would get alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hexcloud.domain.packing import width_of
from hexcloud.domain.sample import Sample
from hexcloud.runtime.loss import Tokens


@dataclass(frozen=True)
class Graded:
    """A sample with its advantage."""

    sample: Sample
    advantage: float

    @property
    def length(self) -> int:
        """Tokens that go in: the last one predicts nothing."""
        return len(self.sample.prompt_ids) + len(self.sample.tokens) - 1


@dataclass(frozen=True)
class Pack:
    """One forward pass. [rows, width] tensors go in; `places` and `targets` are of the response tokens."""

    ids: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor | None
    """[rows, 1, width, width], true where a token may look; None: no row has two samples, so causal is enough."""
    places: torch.Tensor
    """[tokens], where each token is predicted, counted row by row."""
    targets: torch.Tensor
    """[tokens], the tokens themselves."""
    tokens: Tokens


def make_pack(rows: Sequence[Sequence[Graded]], version: int, device: str = "cpu") -> Pack:
    """Lay out one pass; without samples it is one that moves nothing. `version` is that of the step's start."""
    width = width_of(rows)
    ids: list[int] = []
    positions: list[int] = []
    owner: list[int] = []
    places: list[int] = []
    targets: list[int] = []
    for number, row in enumerate(rows or [[]]):
        for place, one in enumerate(row):
            first = len(ids) + len(one.sample.prompt_ids) - 1
            places += range(first, first + len(one.sample.tokens))
            targets += one.sample.tokens
            ids += (one.sample.prompt_ids + one.sample.tokens)[:-1]
            positions += range(one.length)
            owner += [place] * one.length
        padding = (number + 1) * width - len(ids)
        ids += [0] * padding
        positions += [0] * padding
        owner += [-1] * padding
    return Pack(
        ids=torch.tensor(ids, device=device).view(-1, width),
        positions=torch.tensor(positions, device=device).view(-1, width),
        mask=_mask(torch.tensor(owner, device=device).view(-1, width)) if any(len(row) > 1 for row in rows) else None,
        places=torch.tensor(places, dtype=torch.long, device=device),
        targets=torch.tensor(targets, dtype=torch.long, device=device),
        tokens=_tokens([one for row in rows for one in row], version, device),
    )


def _tokens(samples: list[Graded], version: int, device: str) -> Tokens:
    def row(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device)

    return Tokens(
        behave=row([value for one in samples for value in one.sample.logprobs]),
        advantages=row([one.advantage for one in samples for _ in one.sample.tokens]),
        age=row([float(version - made) for one in samples for made in one.sample.versions]),
    )


def _mask(owner: torch.Tensor) -> torch.Tensor:
    """Let each token see its own sample up to itself; padding sees padding, as no row of a mask may be empty."""
    width = owner.shape[1]
    is_own = owner[:, :, None] == owner[:, None, :]
    return (is_own & torch.ones(width, width, dtype=torch.bool, device=owner.device).tril())[:, None]
