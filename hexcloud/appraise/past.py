"""Past: what a source remembers of its own earlier prices, taken through the gate over series."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

import numpy as np

from hexcloud.appraise.history import Events, Machine, Standing, history_of
from hexcloud.appraise.known import Known
from hexcloud.appraise.series import RULES, Judged, judge
from hexcloud.appraise.units import rate
from hexcloud.domain.market import Outcome
from hexcloud.domain.offer import OfferId, Tenure, offer_id
from hexcloud.domain.prices import PastPart, PastPrice, PriceChange

_BEFORE_ALL_S = 0.0
"""Moment of the on-demand prices that the past is held against."""
_BELIEVED = (Outcome.ACCEPT, Outcome.FLAG)


class JudgedPast(NamedTuple):
    """What is believed of a region's past, and how many prices came to each outcome."""

    changes: tuple[PriceChange, ...]
    """By offer, oldest first; a price that only repeats the one before is no change."""
    outcomes: dict[Outcome, int]


class _Event(NamedTuple):
    """One judged price of an offer, and until when the source said nothing else."""

    at_s: float
    end_s: float
    usd_per_hour: float
    outcome: Outcome


def judge_past(part: PastPart, known: Known, on_demand: Mapping[str, float]) -> JudgedPast:
    """Judge each earlier price from those before it. `on_demand`: instance type -> USD/h in the part's region now.

    What a machine costs on demand today is taken for what it cost all along: a source keeps no past of that. Where it
    was dearer once, a spot price of then may be refused, and none is believed that should not be.
    """
    one_unit = rate(part.currency, known.usd_per_unit) or math.nan
    latest_s = known.latest.timestamp() if known.latest else math.inf
    sound = [price for price in part.prices if _is_sound(price, part, latest_s)]
    said = sorted(sound, key=_order)
    events = (_events(said, one_unit), _references(part, on_demand))
    judged = judge(history_of(events), known, {name: Machine(*gpus) for name, gpus in part.gpus.items()})
    counts = Counter(RULES[rule][1] for rule in judged.rule[judged.history.at_s > _BEFORE_ALL_S].tolist())
    counts[Outcome.REJECT] += len(part.prices) - len(sound)
    listed = {(price.offer_id, price.at_s): price.list_price for price in said}
    changes = (change for name in judged.history.ids for change in _changes(part, judged, listed, name))
    return JudgedPast(tuple(changes), {outcome: counts[outcome] for outcome in Outcome})


def _is_sound(price: PastPrice, part: PastPart, latest_s: float) -> bool:
    """Has it a date that has been, and the name of an offer of its region?"""
    is_named = price.offer_id.startswith(f"{part.cloud}/{part.region}/") and price.offer_id.count("/") == 4
    return is_named and _BEFORE_ALL_S < price.at_s <= latest_s


def _order(price: PastPrice) -> tuple[float, float]:
    """Of several at one moment the last counts: the dearest, and one that cannot be read the least."""
    return price.at_s, -math.inf if math.isnan(price.list_price) else price.list_price


def _events(said: list[PastPrice], one_unit: float) -> Events:
    place = {name: number for number, name in enumerate(dict.fromkeys(price.offer_id for price in said))}
    return Events(
        ids=tuple(place),
        series=np.array([place[price.offer_id] for price in said], np.int64),
        at_s=np.array([price.at_s for price in said], np.float64),
        usd_per_hour=np.array([price.list_price for price in said], np.float64) * one_unit,
        standing=np.full(len(said), Standing.PRICED, np.int8),
    )


def _references(part: PastPart, on_demand: Mapping[str, float]) -> Events:
    return Events(
        ids=tuple(offer_id(part.cloud, part.region, None, name, Tenure.ON_DEMAND) for name in on_demand),
        series=np.arange(len(on_demand)),
        at_s=np.full(len(on_demand), _BEFORE_ALL_S),
        usd_per_hour=np.array(list(on_demand.values()), np.float64),
        standing=np.full(len(on_demand), Standing.PRICED, np.int8),
    )


def _changes(
    part: PastPart, judged: Judged, listed: Mapping[tuple[OfferId, float], float], name: OfferId
) -> Iterator[PriceChange]:
    """Yield the believed changes of one offer, each confirmed until the source said something else."""
    where = judged.history.series(name)
    at_s, usd = judged.history.at_s[where].tolist(), judged.history.usd_per_hour[where].tolist()
    ends_s = [*at_s[1:], max(at_s[-1], part.as_of.timestamp())]
    outcomes = [RULES[rule][1] for rule in judged.rule[where].tolist()]
    events = [_Event(*event) for event in zip(at_s, ends_s, usd, outcomes, strict=True)]
    believed = (one for one in events if one.at_s > _BEFORE_ALL_S and one.outcome in _BELIEVED)
    for usd_per_hour, same in groupby(believed, key=lambda event: event.usd_per_hour):
        run = tuple(same)
        yield PriceChange(
            offer_id=name,
            source=part.source,
            at_s=run[0].at_s,
            confirmed_s=run[-1].end_s,
            usd_per_hour=usd_per_hour,
            list_price=listed[name, run[0].at_s],
            currency=part.currency,
        )
