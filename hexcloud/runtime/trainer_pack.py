"""Packs: samples laid side by side into rows of a forward pass (domain/packing). No sample sees another.

A pack is a rectangle. Long samples open its rows and shorter ones fill what is left; a mask keeps them apart and each
counts its positions from 0, so every token gets the logprob it would get alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import torch

from hexcloud.domain.packing import width_of
from hexcloud.domain.sample import Sample
from hexcloud.runtime.loss import Tokens


@dataclass(frozen=True)
class Graded:
    """A sample with its advantage."""

    sample: Sample
    advantage: float

    @cached_property
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
    samples = [one.sample for row in rows for one in row]
    width = width_of(rows)
    starts, lengths, owners = _spans(rows, width)
    slots, places = _spread(starts, lengths)
    responses = np.array([len(sample.tokens) for sample in samples], dtype=np.int64)
    ids, positions, owner = np.zeros((3, max(1, len(rows)) * width), dtype=np.int64)
    ids[slots] = _flat([(sample.prompt_ids + sample.tokens)[:-1] for sample in samples], np.int64)
    positions[slots] = places
    owner[slots] = np.repeat(owners + 1, lengths)  # 0 is padding
    grid = torch.from_numpy(np.stack([ids, positions, owner])).view(3, -1, width).to(device)
    return Pack(
        ids=grid[0],
        positions=grid[1],
        mask=_mask(grid[2]) if any(len(row) > 1 for row in rows) else None,
        places=torch.from_numpy(_spread(starts + lengths - responses, responses)[0]).to(device),
        targets=torch.from_numpy(_flat([sample.tokens for sample in samples], np.int64)).to(device),
        tokens=_tokens([one for row in rows for one in row], responses, version, device),
    )


def _spans(rows: Sequence[Sequence[Graded]], width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each sample where it starts, counted row by row, how long it is, and its number in its row."""
    spans = []
    for number, row in enumerate(rows):
        start = number * width
        for place, one in enumerate(row):
            spans.append((start, one.length, place))
            start += one.length
    starts, lengths, owners = np.array(spans, dtype=np.int64).reshape(-1, 3).T
    return starts, lengths, owners


def _spread(starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers from each start on, as many as its length, and what each is counted from its start."""
    within = np.arange(lengths.sum()) - np.repeat(lengths.cumsum() - lengths, lengths)
    return np.repeat(starts, lengths) + within, within


def _flat(parts: Sequence[Sequence[float]], kind: type[np.generic]) -> np.ndarray:
    return np.fromiter(chain.from_iterable(parts), kind, sum(map(len, parts)))


def _tokens(samples: list[Graded], responses: np.ndarray, version: int, device: str) -> Tokens:
    advantages = np.array([one.advantage for one in samples], dtype=np.float32)
    made = _flat([one.sample.versions for one in samples], np.float32)
    return Tokens(
        behave=torch.from_numpy(_flat([one.sample.logprobs for one in samples], np.float32)).to(device),
        advantages=torch.from_numpy(np.repeat(advantages, responses)).to(device),
        age=torch.from_numpy(version - made).to(device),
    )


def _mask(owner: torch.Tensor) -> torch.Tensor:
    """Let each token see its own sample up to itself; padding sees padding, as no row of a mask may be empty."""
    width = owner.shape[1]
    is_own = owner[:, :, None] == owner[:, None, :]
    return (is_own & torch.ones(width, width, dtype=torch.bool, device=owner.device).tril())[:, None]
