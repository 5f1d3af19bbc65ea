"""Witness: what sources of another lineage say of a machine."""

import math
from collections import defaultdict

from hexcloud.appraise.known import Known, Seen
from hexcloud.appraise.limits import AGREES, SAME
from hexcloud.domain.offer import Tenure
from hexcloud.domain.row import Row

_Machine = tuple[str, str, str]
"""Cloud, region, instance type."""


class Witnesses:
    """What other sources say, by machine."""

    def __init__(self, known: Known) -> None:
        self._seen: dict[_Machine, list[Seen]] = defaultdict(list)
        self._on_demand: dict[_Machine, float] = {}
        for seen in known.seen:
            self._seen[seen.cloud, seen.region, seen.instance_type].append(seen)
            if seen.is_believed and seen.tenure == Tenure.ON_DEMAND and 0 < seen.usd_per_hour < math.inf:
                for region in (seen.region, ""):
                    machine = (seen.cloud, region, seen.instance_type)
                    self._on_demand[machine] = max(seen.usd_per_hour, self._on_demand.get(machine, 0.0))

    def confirm(self, row: Row, usd: float) -> bool:
        """Does anybody independent list the machine with as many GPUs at about this price, USD per hour?

        Who lists it dearer than a sum that lacks a part does not say that the sum is whole: a host is a fifth of it.
        """
        return any(
            seen.lineage not in ("", row.lineage or row.source)
            and (seen.tenure, seen.gpu_count) == (row.tenure, row.gpu_count)
            and _agree(seen.usd_per_hour, usd)
            and not (row.missing and seen.usd_per_hour > usd * SAME)
            for seen in self._seen.get((row.cloud, row.region, row.instance_type), ())
        )

    def on_demand(self, cloud: str, region: str, instance_type: str) -> float | None:
        """Return the highest believed on-demand price of a machine, USD per hour; region `` stands for all of them."""
        return self._on_demand.get((cloud, region, instance_type))


def _agree(one: float, other: float) -> bool:
    """Differ by at most the share of the larger? False for NaN and infinity, which agree with nobody."""
    return (1 - AGREES) * one <= other and (1 - AGREES) * other <= one
