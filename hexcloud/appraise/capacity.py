"""Capacity: prices that are true, and where all the same there may be nothing to buy; and what spot costs on demand.

Clouds list spot at the floor discount, or at the full price, where they have no hardware. A spot price is held against
believed on-demand prices only, so a bad row never changes what is made of a good one.
"""

from collections.abc import Iterable

from hexcloud.appraise.doubt import Doubt, flag, reject
from hexcloud.appraise.known import Known
from hexcloud.appraise.limits import FLOOR_SHARE, LOW_SCORE, OVER_ON_DEMAND, looks_like_one_gpus
from hexcloud.appraise.witness import Witnesses
from hexcloud.domain.offer import Tenure
from hexcloud.domain.row import Row

_Machine = tuple[str, str, str]


class OnDemand:
    """What machines cost on demand, USD per hour: the highest price listed, since any of them would do."""

    def __init__(self, believed: Iterable[tuple[Row, float]], known: Known, witnesses: Witnesses) -> None:
        """Take the believed on-demand rows of the batch with their prices, and what is usual and other sources say."""
        self._usual = known.usual_usd_per_gpu_hour
        self._witnesses = witnesses
        self._machine: dict[_Machine, float] = {}
        self._per_gpu: dict[_Machine, float] = {}
        """(cloud, region, gpu); under region `` the dearest of the whole cloud."""
        for row, usd in believed:
            _raise(self._machine, (row.cloud, row.region, row.instance_type), usd)
            for region in (row.region, ""):
                _raise(self._per_gpu, (row.cloud, region, row.gpu), usd / row.gpu_count)

    def over(self, row: Row, usd: float) -> Doubt | None:
        """Return the doubt about a spot price over the on-demand price that the same batch lists."""
        own = self._own(row)
        if own is None or usd <= own * OVER_ON_DEMAND:
            return None
        return reject("spot_over_on_demand", "price", f"spot {usd:.4g} is over on-demand {own:.4g} USD/h")

    def suspect(self, row: Row, usd: float) -> Doubt | None:
        """Return the doubt about a spot price at the floor or at the full price."""
        own = self._own(row)
        if own is not None and usd >= own / OVER_ON_DEMAND:
            return flag("spot_equals_on_demand", "price", f"spot equals on-demand ({own:.4g} USD/h): capacity unproven")
        dear = own or self._around(row)
        if dear is None or not (usd < FLOOR_SHARE * dear or looks_like_one_gpus(usd, dear, row.gpu_count)):
            return None
        reason = f"spot {usd:.4g} is {usd / dear:.0%} of on-demand: a floor price, capacity unproven"
        return flag("floor_price", "price", reason)

    def _own(self, row: Row) -> float | None:
        return self._machine.get((row.cloud, row.region, row.instance_type))

    def _around(self, row: Row) -> float | None:
        """Return what the machine should cost on demand: by another source, its neighbours' GPUs, or other regions.

        Where nobody there lists such a machine, what its GPUs usually cost anywhere.
        """
        for region in (row.region, ""):
            named = self._witnesses.on_demand(row.cloud, region, row.instance_type)
            each = self._per_gpu.get((row.cloud, region, row.gpu))
            if named is not None or each is not None:
                return named if named is not None else (each or 0.0) * row.gpu_count
        usual = self._usual.get(row.gpu)
        return None if usual is None else usual * row.gpu_count


def unproven(row: Row, usd: float, on_demand: OnDemand) -> Doubt | None:
    """Return why a launch may well fail although the price is true."""
    if row.listed is False:
        where = f"zone {row.zone}" if row.zone else f"region {row.region}"
        return flag("not_listed", "listed", f"the cloud lists no {row.instance_type} in {where}: capacity unproven")
    if row.tenure != Tenure.SPOT:
        return None
    if (doubt := on_demand.suspect(row, usd)) is not None:
        return doubt
    if row.placement_score is not None and 1 <= row.placement_score <= LOW_SCORE:
        reason = f"spot placement score {row.placement_score} of 10: capacity unproven"
        return flag("low_placement_score", "placement_score", reason)
    return None


def _raise(prices: dict[_Machine, float], key: _Machine, usd: float) -> None:
    prices[key] = max(usd, prices.get(key, 0.0))
