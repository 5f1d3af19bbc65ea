"""Limits: the thresholds of the gate, one place for the gate over rows and the gate over recorded series.

Tried on 3,935 GPU rows of thirteen clouds in public catalogs of 2024 and 2026, and on 375,285 recorded spot prices.
"""

GPU_COUNTS = frozenset({1, 2, 4, 8, 16})
"""GPUs that rented machines have; 12 and 6 were typing errors for 8 in a real catalog."""
OVER_ON_DEMAND = 1.001
"""Spot above this multiple of on-demand is an error; the margin is for rounding in price lists."""
FLOOR_SHARE = 0.12
"""Clouds list spot at 9 to 10 % of on-demand where there is no hardware to sell."""
LOW_SCORE = 2
"""AWS spot placement scores go from 1 to 10; at this one and below a launch is unlikely to succeed."""
CHEAP_SHARE = 0.1
"""An on-demand price per GPU under this share of the usual one waits for a witness."""
CHEAP_SPOT_SHARE = 0.01
"""The same for spot: a tenth of the floor discount on top."""
STEP = 0.30
"""A list price that moved by more than this share between two snapshots waits for a second one with other content."""
STEP_AGREES = 0.05
"""Two answers that were taken for half-written say the same when their lengths differ by at most this share."""
AGREES = 0.30
"""Two sources agree on a price when they differ by at most this share."""
WITNESS_DAYS = 365
"""Who said so longer before a price was listed is no witness for it: prices fall over the years."""
SAME = 1.01
"""Prices of one machine in two lists are the same up to rounding: what a witness of an incomplete sum must say."""
LEAST_PART = 0.5
"""A refresh of a region with fewer than this share of its last rows is taken for half-written."""
LARGE = 8
"""GPUs from which a price per GPU in a column of whole machines is told from a bargain: an eighth is none."""
SMALL = 4
"""The same where another source lists the machine."""


def cheap_share(is_spot: bool, gpu_count: float) -> float:
    """Return the share of the usual price under which a price waits for a witness.

    On demand, a large machine for about what one of its GPUs costs is a price per GPU in the wrong column.
    """
    if is_spot:
        return CHEAP_SPOT_SHARE
    return max(CHEAP_SHARE, (1 + AGREES) / gpu_count) if gpu_count >= LARGE else CHEAP_SHARE


def looks_like_one_gpus(spot: float, on_demand: float, gpu_count: float) -> bool:
    """Is the spot price of a whole machine what one of its GPUs costs on demand, to the cent?"""
    return gpu_count >= SMALL and abs(spot * gpu_count - on_demand) <= (SAME - 1) * on_demand
