"""How many versions old a sample is when it is trained: the one rule behind the columns' reach and the forecast."""

from hexcloud.domain.workload import Workload
from hexcloud.estimate.rollout import reload_s

SERIAL_SHARE = 0.5
"""At eta = 0 rollout and training take turns: each gets half of a step. Their best split differs by little."""


def versions_allowed(workload: Workload) -> float:
    """Return how many steps generation, travel and reload may take together: eta, or half of one when it is 0."""
    return float(workload.eta) if workload.eta > 0 else SERIAL_SHARE


def sync_s(workload: Workload, tp: int, travel_s: float, step_s: float) -> float:
    """Return how old weights are at most when an engine `travel_s` away starts with them, seconds.

    A way that takes longer than a step carries only every other version, so weights grow older before the next arrives.
    """
    return travel_s + max(0.0, travel_s - step_s) + reload_s(workload, tp)


def versions_old(workload: Workload, tp: int, generation_s: float, travel_s: float, step_s: float) -> float:
    """Return the age in steps of a sample that takes `generation_s`, where weights come from `travel_s` away."""
    return (generation_s + sync_s(workload, tp, travel_s, step_s)) / step_s


def farthest_s(workload: Workload, tp: int, generation_s: float, step_s: float) -> float:
    """Return the longest way of the weights, seconds, from which `versions_old` is still allowed; negative: none is."""
    left = versions_allowed(workload) * step_s - generation_s - reload_s(workload, tp)
    return min(left, (left + step_s) / 2.0)
