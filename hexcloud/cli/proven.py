"""proven: what the solver proved of a plan, in words: which plan cannot be."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hexcloud.domain.plan import Proof

MILLION = 1e6


class Bound(NamedTuple):
    """One thing that no plan can do."""

    key: str
    """Its name in `--json`."""
    what: str
    value: float
    text: str
    """The value with its unit."""


def bounds(proof: "Proof", tokens_per_sample: float) -> tuple[Bound, ...]:
    """Return what was proven, in the user's units: price of min_cost, pace of max_throughput, a token's price."""
    cost, pace, sample = (
        proof.lower_bound_usd_per_hour,
        proof.upper_bound_samples_per_s,
        proof.lower_bound_usd_per_sample,
    )
    found = []
    if cost is not None:
        found.append(Bound("lower_bound_usd_per_hour", "no plan is under", cost, f"{cost:.2f} USD/h"))
    if pace is not None:
        tokens = pace * tokens_per_sample
        found.append(Bound("upper_bound_tokens_per_s", "no plan makes more than", tokens, f"{tokens:.0f} tok/s"))
    if sample is not None:
        usd = sample * MILLION / tokens_per_sample
        text = f"{usd:.4f} USD per 1e6 tokens"
        found.append(Bound("lower_bound_usd_per_1e6_tokens", "no plan trains for less than", usd, text))
    return tuple(found)
