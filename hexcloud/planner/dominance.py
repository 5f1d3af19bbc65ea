"""dominance: rollout columns that another column of the same place makes pointless, whatever else is in the plan."""

from collections import defaultdict
from collections.abc import Iterable

from hexcloud.domain.offer import Offer, OfferId, Tenure
from hexcloud.domain.plan import Role, RolloutColumn, TrainerColumn
from hexcloud.planner.useful import Useful

Place = tuple[str, str | None, Tenure]


def undominated(useful: Useful, gangs: Iterable[TrainerColumn], *, relaxed: bool = False) -> tuple[RolloutColumn, ...]:
    """Return the columns without those that lose to another in every row of the model.

    One goes only if the winner stands in the same zone and failure domain, costs no more, makes no less, fills no more
    slots, keeps no fewer cores and draws on no other quota, and if the winner is the same machine, or its stock beside
    the largest gang is all that any cheapest plan can use of it. Then every plan with the loser can be had without it
    for no more money. Machines that run, or that the plan must hold, only change their batch. `relaxed` is for relaxed
    models (see `Choice`): zones, slots and the batch of spot machines do not count there.
    """
    plentiful = _plentiful(useful, gangs)
    by_place: dict[Place, list[RolloutColumn]] = defaultdict(list)
    for column in useful.columns:
        offer = useful.problem.offers[column.offer_id]
        by_place[offer.domain, None if relaxed else offer.zone, offer.tenure].append(column)
    kept: set[RolloutColumn] = set()
    for columns in by_place.values():
        winners: list[RolloutColumn] = []
        for column in sorted(columns, key=lambda one: _rank(useful, one)):
            rivals = (one for one in winners if one.offer_id == column.offer_id or one.offer_id in plentiful)
            if not any(_beats(useful, rival, column, relaxed) for rival in rivals):
                winners.append(column)
        kept.update(winners)
    return tuple(column for column in useful.columns if column in kept)


def _plentiful(useful: Useful, gangs: Iterable[TrainerColumn]) -> set[OfferId]:
    """Offers of which there is more than any cheapest plan can use."""
    problem = useful.problem
    largest: dict[OfferId, int] = defaultdict(int)
    for gang in gangs:
        largest[gang.offer_id] = max(largest[gang.offer_id], gang.nodes)
    needs: dict[OfferId, list[float]] = defaultdict(list)
    for column in useful.columns:
        needs[column.offer_id].append(useful.need(column))
    return {name for name, need in needs.items() if min(sum(need), max(need)) <= problem.stock[name] - largest[name]}


def _rank(useful: Useful, column: RolloutColumn) -> tuple[float, float, int, float, str, int]:
    """Sort key under which a winner comes before all it beats."""
    usd_per_hour = useful.problem.offers[column.offer_id].usd_per_hour
    return (usd_per_hour, -_made(useful, column), column.slots, -_cores(useful, column), column.offer_id, column.batch)


def _beats(useful: Useful, winner: RolloutColumn, loser: RolloutColumn, relaxed: bool) -> bool:
    problem = useful.problem
    is_other = winner.offer_id != loser.offer_id
    if is_other and (loser.offer_id in problem.require or problem.limits.running(loser.offer_id, Role.ROLLOUT) > 0):
        return False
    one, other = problem.offers[winner.offer_id], problem.offers[loser.offer_id]
    return (
        _made(useful, winner) >= _made(useful, loser)
        and (relaxed or winner.slots <= loser.slots)
        and _cores(useful, winner) >= _cores(useful, loser)
        and _draws_no_more(one, other)
        and ((relaxed and not is_other) or _keeps_spot_share(useful, winner, loser))
    )


def _made(useful: Useful, column: RolloutColumn) -> float:
    return min(useful.rates[column], useful.samples_per_s)


def _cores(useful: Useful, column: RolloutColumn) -> float:
    return min(useful.problem.reward_vcpus(column), useful.reward_vcpus)


def _draws_no_more(one: Offer, other: Offer) -> bool:
    return one.quota is None or (one.quota == other.quota and one.quota_units <= other.quota_units)


def _keeps_spot_share(useful: Useful, winner: RolloutColumn, loser: RolloutColumn) -> bool:
    """More spot throughput may break the share; more on-demand throughput, or less of what is over T, may too."""
    one, other = useful.rates[winner], useful.rates[loser]
    if useful.problem.policy.max_spot_share >= 1:
        return True
    tenure = useful.problem.offers[winner.offer_id].tenure
    return one <= other if tenure is Tenure.SPOT else one >= other
