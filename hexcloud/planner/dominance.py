"""dominance: rollout columns that another column of the same place makes pointless, whatever else is in the plan."""

from dataclasses import dataclass

import numpy as np

from hexcloud.planner.table import NO_QUOTA, Flags, Floats, Ints
from hexcloud.planner.useful import Useful


@dataclass(frozen=True)
class Contest:
    """Which columns compete, and for which models the losers may be left out."""

    useful: Useful
    among: Ints
    """Rows of `useful.table`, ascending."""
    taken: Floats
    """By offer: the most machines that a gang may take of the same stock."""
    relaxed: bool = False
    """For relaxed models without egress (see `Choice`): zones do not count there."""
    any_site: bool = False
    """For every site of the trainer at once: the winner must be in reach wherever the loser is."""


def undominated(contest: Contest) -> Ints:
    """Return the rows without those that lose to another in every rule of the model.

    One goes only if the winner stands in the same zone and failure domain, costs no more (rent, and rent with
    start-up), makes no less, fills no more slots, keeps no fewer cores and draws on no other quota, and if the winner
    is the same machine, or its stock beside the largest gang is all that any cheapest plan can use of it. Then every
    plan with the loser can be had without it for no more money: losing is transitive, and ties go by a total order.
    Machines that run, or that the plan must hold, only change their batch. Rates and prices are the model's own, with
    whatever the market knows of an offer's interruptions and start-up in them.
    """
    if len(contest.among) == 0 or contest.useful.problem.keeps_all:
        return contest.among
    one, other = _pairs(contest)
    beats = _is_allowed(contest, one, other) & _is_better(contest, one, other)
    winner, loser = one[beats], other[beats]
    if contest.useful.problem.policy.max_pools is not None:
        loser = _without_new_pools(contest, winner, loser)
    lost = np.zeros(len(contest.useful.table), np.bool_)
    lost[loser] = True
    kept: Ints = contest.among[~lost[contest.among]]
    return kept


def _pairs(contest: Contest) -> tuple[Ints, Ints]:
    """Return all ordered pairs of columns in one place, the first before the second in rank."""
    useful, among = contest.useful, contest.among
    table = useful.table
    places = (table.facts.tenured_domain if contest.relaxed else table.facts.place)[table.offer[among]]
    keys = (
        among,
        -useful.cores[among],
        table.slots[among],
        -useful.made[among],
        table.usd_per_hour[among],
        table.price[among],
        places,
    )
    order = np.lexsort(keys)
    ranked, sorted_places = among[order], places[order]
    starts = np.flatnonzero(np.r_[True, sorted_places[1:] != sorted_places[:-1]])
    ends = np.repeat(np.r_[starts[1:], len(ranked)], np.diff(np.r_[starts, len(ranked)]))
    after = ends - np.arange(len(ranked)) - 1
    first = np.repeat(np.arange(len(ranked)), after)
    offset = np.arange(len(first)) - np.repeat(np.cumsum(after) - after, after)
    return ranked[first], ranked[first + 1 + offset]


def _is_allowed(contest: Contest, one: Ints, other: Ints) -> Flags:
    """May a plan do without the second column, as far as stock, what runs and what it must hold are concerned?"""
    table = contest.useful.table
    is_same = (table.offer[one] == table.offer[other]) & (table.nodes[one] == table.nodes[other])
    is_free = ~table.is_bound[other]
    allowed: Flags = is_same | (is_free & _plentiful(contest)[table.offer[one]])
    return allowed


def _plentiful(contest: Contest) -> Flags:
    """Offers, by number, of which there is more than any cheapest plan can use."""
    useful, among = contest.useful, contest.among
    table = useful.table
    left = table.facts.stock - contest.taken
    most, total, largest = np.zeros(len(left)), np.zeros(len(left)), np.zeros(len(left))
    np.maximum.at(most, table.offer[among], useful.need[among])
    np.maximum.at(largest, table.offer[among], table.nodes[among])
    np.add.at(total, table.offer[among], useful.need[among] * table.nodes[among])
    with np.errstate(invalid="ignore"):  # of an offer without columns: 0 of infinitely many
        plentiful: Flags = np.minimum(most * largest, total) <= left
    return plentiful


def _is_better(contest: Contest, one: Ints, other: Ints) -> Flags:
    """Is the first column no worse than the second in every row and in the objective? It is before it in rank."""
    useful = contest.useful
    table = useful.table
    better: Flags = (
        (table.usd_per_hour[one] <= table.usd_per_hour[other])
        & (table.price[one] <= table.price[other])
        & (useful.made[one] >= useful.made[other])
        & (useful.cores[one] >= useful.cores[other])
    )
    for draw in table.draws:
        same = (draw.quota[one] == draw.quota[other]) & (draw.units[one] <= draw.units[other])
        better &= (draw.quota[one] == NO_QUOTA) | same
    if not useful.is_eased:
        better &= table.slots[one] <= table.slots[other]
    if contest.any_site:
        better &= useful.farthest_s[one] >= useful.farthest_s[other]
    return better & _keeps_spot_share(contest, one, other)


def _keeps_spot_share(contest: Contest, one: Ints, other: Ints) -> Flags:
    """More spot throughput may break the share; less on-demand throughput may too, also of what is over T.

    In eased models only the latter can.
    """
    useful = contest.useful
    if not useful.shares_spot:
        return np.ones(len(one), np.bool_)
    if useful.is_eased:
        return useful.staying[one] >= useful.staying[other]
    full, is_spot = useful.full_rates, useful.table.is_spot[one]
    keeps: Flags = np.where(is_spot, full[one] <= full[other], full[one] >= full[other])
    return keeps


def _without_new_pools(contest: Contest, winner: Ints, loser: Ints) -> Ints:
    """Return the losers that go without a plan needing one pool more: all of an offer, to one other, or a mere batch.

    An offer that may train is in the plan anyway, so its rollout machines may be the ones that cost no pool.
    """
    table = contest.useful.table
    trains = set(np.flatnonzero(contest.taken).tolist())
    is_batch = table.offer[winner] == table.offer[loser]
    gone = set(loser[is_batch].tolist())
    beaten_by: dict[int, dict[int, set[int]]] = {}
    for one, other in zip(winner[~is_batch].tolist(), loser[~is_batch].tolist(), strict=True):
        offer = int(table.offer[other])
        if offer not in trains:
            beaten_by.setdefault(offer, {}).setdefault(int(table.offer[one]), set()).add(other)
    columns: dict[int, set[int]] = {}
    for position in contest.among.tolist():
        columns.setdefault(int(table.offer[position]), set()).add(position)
    for offer, rivals in beaten_by.items():
        if any(columns[offer] <= lost | gone for lost in rivals.values()):
            gone |= columns[offer]
    return np.fromiter(sorted(gone), np.int64, len(gone))
