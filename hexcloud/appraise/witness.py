"""Witness: what sources of another lineage say of a machine."""

import math
from collections import defaultdict
from datetime import timedelta

from hexcloud.appraise.known import Known, Seen, agree
from hexcloud.appraise.limits import SAME, SMALL, WITNESS_DAYS
from hexcloud.appraise.units import moment
from hexcloud.domain.offer import Tenure
from hexcloud.domain.row import Row

_Machine = tuple[str, str, str]
"""Cloud, region, instance type."""


class Witnesses:
    """What other sources say, by machine."""

    def __init__(self, known: Known) -> None:
        self._seen: dict[_Machine, list[Seen]] = defaultdict(list)
        self._on_demand: dict[_Machine, float] = {}
        self._least_per_gpu: dict[tuple[str, str], float] = {}
        """(cloud, gpu) -> the least that one GPU of a large machine costs on demand."""
        for seen in known.seen:
            self._seen[seen.cloud, seen.region, seen.instance_type].append(seen)
            if seen.is_believed and seen.tenure == Tenure.ON_DEMAND and 0 < seen.usd_per_hour < math.inf:
                for region in (seen.region, ""):
                    machine = (seen.cloud, region, seen.instance_type)
                    self._on_demand[machine] = max(seen.usd_per_hour, self._on_demand.get(machine, 0.0))
                if seen.gpu_count >= SMALL:
                    kind, each = (seen.cloud, seen.gpu), seen.usd_per_hour / seen.gpu_count
                    self._least_per_gpu[kind] = min(each, self._least_per_gpu.get(kind, math.inf))

    def confirm_price(self, row: Row, usd: float) -> bool:
        """Does anybody independent, and believed, say so of a price, USD per hour, that nobody would believe alone?

        A placeholder is copied from list to list, and lists of years ago were of other prices: those who wait
        themselves, and those long before the row, say nothing. Who lists it dearer than a sum that lacks a part does
        not say that the sum is whole: a host is a fifth of it.
        """
        return any(
            seen.is_believed and _is_of_its_time(seen, row) and not (row.missing and seen.usd_per_hour > usd * SAME)
            for seen in self._agreeing(row, usd)
        )

    def confirm_count(self, row: Row, usd: float) -> bool:
        """Does anybody independent list as many GPUs at about this price? Those who wait for each other are enough."""
        return bool(self._agreeing(row, usd))

    def _agreeing(self, row: Row, usd: float) -> list[Seen]:
        return [
            seen
            for seen in self._seen.get((row.cloud, row.region, row.instance_type), ())
            if seen.lineage not in ("", row.lineage or row.source)
            and (seen.tenure, seen.gpu_count) == (row.tenure, row.gpu_count)
            and agree(seen.usd_per_hour, usd)
        ]

    def on_demand_anywhere(self, row: Row) -> float | None:
        """Return what an on-demand row's machine costs by what is believed of it in its region, else in any.

        Else what as many GPUs of the same cloud's other large machines cost at least.
        """
        if row.tenure != Tenure.ON_DEMAND:
            return None
        for region in (row.region, ""):
            if (found := self.on_demand(row.cloud, region, row.instance_type)) is not None:
                return found
        each = self._least_per_gpu.get((row.cloud, row.gpu))
        return None if each is None else each * row.gpu_count

    def on_demand(self, cloud: str, region: str, instance_type: str) -> float | None:
        """Return the highest believed on-demand price of a machine, USD per hour; region `` stands for all of them."""
        return self._on_demand.get((cloud, region, instance_type))


def _is_of_its_time(seen: Seen, row: Row) -> bool:
    listed = moment(row.as_of)
    return seen.as_of is None or listed is None or listed - seen.as_of <= timedelta(days=WITNESS_DAYS)
