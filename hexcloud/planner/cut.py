"""cut: which machines of a fixed fleet train. AReaL-Hex's graph cut (arXiv 2511.00796, section 4.3, Eq. 3).

Eq. 3 keeps good links inside the trainer's side and HBM bandwidth on the rollout side, while the trainer's share of all
FLOPS lies in a window. The paper does not name its heuristic; this one starts from grown and spectral sides and refines
each by chains of moves and swaps (Kernighan and Lin, 1970) that stay inside the window.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hexcloud.domain.plan import SlotName
from hexcloud.planner.links import Links

Side = NDArray[np.bool_]
"""For each machine: does it train?"""
Shares = NDArray[np.float64]
"""Parts of a total of 1."""

_LEAST_GAIN = 1e-12
"""Smaller differences of a score are rounding."""
_CHAIN = 8
"""Steps a refinement looks ahead: enough to leave small local optima, and cheap for some hundred machines."""
_MOST_SEEDS = 48
"""Machines from which a side is grown: one of each kind, as long as they are so few."""
_MOST_REFINED = 24
"""Starts that are refined, best first."""


def eq3_score(links: Links, trainers: frozenset[SlotName]) -> float:
    """Return AReaL-Hex's Eq. 3: bandwidth share inside the trainer's side + HBM bandwidth share of the rollout side.

    Vertices carry `flops` and `hbm_gb_per_s` next to the links' `gb_per_s`.
    """
    cut = Cut.of(links)
    return cut.score(np.array([name in trainers for name in cut.names]))


def flops_window(links: Links, share: float) -> tuple[float, float]:
    """Return gamma_L and gamma_H around a share: half the largest machine each way, so that some cut always fits.

    The least share is half the largest machine: one machine of any kind must be able to train.
    """
    half = float(Cut.of(links).flops.max()) / 2
    return (max(share, half) - half, max(share, half) + half)


def bisect(links: Links, share: float) -> frozenset[SlotName]:
    """Return the trainer's side with about this share of all FLOPS and the best Eq. 3 score found."""
    cut = Cut.of(links)
    low, high = flops_window(links, share)
    starts = {side.tobytes(): side for side in (*cut.grown(low), *cut.spectral(low))}
    ranked = sorted(starts.values(), key=lambda side: (-cut.score(side), side.tobytes()))
    sides = [cut.refine(side, low, high) for side in ranked[:_MOST_REFINED]]
    best = max(sides, key=lambda side: (cut.score(side), side.tobytes()))
    return frozenset(name for name, trains in zip(cut.names, best, strict=True) if trains)


@dataclass(frozen=True)
class Cut:
    """The graph as shares of its totals, so that moving one machine changes the score by `kept - hbm`."""

    names: tuple[SlotName, ...]
    flops: Shares
    hbm: Shares
    kept: Shares
    """Symmetric matrix: the share of all bandwidth that each link has."""

    @classmethod
    def of(cls, links: Links) -> "Cut":
        """Return the shares of a graph whose vertices carry `flops` and `hbm_gb_per_s`."""
        names = tuple(sorted(links))
        index = {name: number for number, name in enumerate(names)}
        kept = np.zeros((len(names), len(names)))
        for one, other, link in links.edges(data=True):
            kept[index[one], index[other]] = kept[index[other], index[one]] = link["gb_per_s"]
        flops, hbm = (np.array([float(links.nodes[name][key]) for name in names]) for key in ("flops", "hbm_gb_per_s"))
        return cls(names, flops / flops.sum(), hbm / hbm.sum(), kept / max(kept.sum() / 2, np.finfo(float).tiny))

    def score(self, side: Side) -> float:
        """Return Eq. 3 of a side."""
        return float(side @ self.kept @ side) / 2 + float(self.hbm[~side].sum())

    def grown(self, low: float) -> list[Side]:
        """Return sides grown from one machine of each kind, adding what gains most per FLOPS up to the window."""
        kinds: dict[tuple[float, ...], int] = {}
        for number in range(len(self.names)):
            kinds.setdefault((self.flops[number], self.hbm[number], *np.sort(self.kept[number])), number)
        seeds = sorted(kinds.values())
        return [self._grow(seed, low) for seed in seeds[:: -(-len(seeds) // _MOST_SEEDS)]]

    def _grow(self, seed: int, low: float) -> Side:
        side = np.zeros(len(self.names), dtype=np.bool_)
        side[seed] = True
        while self.flops[side].sum() < low and not side.all():
            gain = (self.kept @ side - self.hbm) / self.flops
            side[np.argmax(np.where(side, -np.inf, gain))] = True
        return side

    def spectral(self, low: float) -> list[Side]:
        """Return both ends of the Fiedler order, and the heart of the graph, each up to the window."""
        degree = self.kept.sum(axis=0)
        fiedler = np.linalg.eigh(np.diag(degree) - self.kept)[1][:, min(1, len(degree) - 1)]
        heart = np.linalg.eigh(self.kept)[1][:, -1]
        orders = (np.argsort(fiedler), np.argsort(-fiedler), np.argsort(-np.abs(heart)))
        return [self._prefix(order, low) for order in orders]

    def _prefix(self, order: NDArray[np.intp], low: float) -> Side:
        side = np.zeros(len(self.names), dtype=np.bool_)
        count = int(np.searchsorted(np.cumsum(self.flops[order]), low - _LEAST_GAIN)) + 1
        side[order[:count]] = True
        return side

    def refine(self, side: Side, low: float, high: float) -> Side:
        """Make the best chain of moves and swaps again and again, until none improves the score.

        As in Kernighan-Lin a chain may first get worse; a machine that moved stays where it is to its end.
        """
        while True:
            trial, value, best, best_value = side, 0.0, side, _LEAST_GAIN
            for _ in range(_CHAIN):
                change = self._best_change(trial, trial != side, low, high)
                if change is None:
                    break
                value, trial = value + change[0], change[1]
                if value > best_value:
                    best, best_value = trial, value
            if best is side:
                return side
            side = best

    def _best_change(self, side: Side, fixed: Side, low: float, high: float) -> tuple[float, Side] | None:
        """Return gain and side of the best move or swap of machines that are not fixed, inside the window.

        Rows are who leaves, columns who joins; the first of each is nobody, so that moves are swaps too.
        """
        gain = self.kept @ side - self.hbm
        leaving, joining = np.flatnonzero(side & ~fixed), np.flatnonzero(~side & ~fixed)
        values = np.zeros((len(leaving) + 1, len(joining) + 1))
        values[1:, 1:] = -self.kept[np.ix_(leaving, joining)]
        values[1:] -= gain[leaving][:, None]
        values[:, 1:] += gain[joining]
        flops = np.full_like(values, self.flops[side].sum())
        flops[1:] -= self.flops[leaving][:, None]
        flops[:, 1:] += self.flops[joining]
        values[(flops < low - _LEAST_GAIN) | (flops > high + _LEAST_GAIN)] = -np.inf
        values[0, 0] = -np.inf
        if side.sum() == 1:  # somebody must train
            values[1:, 0] = -np.inf
        row, column = np.unravel_index(np.argmax(values), values.shape)
        if values[row, column] == -np.inf:
            return None
        changed = side.copy()
        if row:
            changed[leaving[row - 1]] = False
        if column:
            changed[joining[column - 1]] = True
        return float(values[row, column]), changed
