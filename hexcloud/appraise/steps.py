"""Steps: which prices of a history moved too far at once, and what confirms them. The one rule that needs an order."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hexcloud.appraise.history import Bools, Codes, Floats, History, Ints
from hexcloud.appraise.jump import confirms, is_step
from hexcloud.appraise.limits import STEP

NO_PRICE = -1
"""Code of an event without a price."""


class Settled(NamedTuple):
    """What time tells of each event; arrays of the history's shape."""

    is_step: Bools
    """It waits, or waited, for a later look that agrees."""
    freed_s: Floats
    """The look that freed it, seconds since the epoch; NaN where none did, or where a newer price took its place."""
    freed_rule: Codes
    """What its outcome is from then on; meaningless where it is not freed."""


class _Series(NamedTuple):
    """One series as plain lists: in an order that matters, Python is quicker over lists than over arrays."""

    at_s: list[float]
    usd_per_hour: list[float]
    is_sound: list[bool]
    has_price: list[bool]


def settle(history: History, rule: Codes, sound: Bools) -> Settled:
    """Find the steps among the sound prices of a history. `rule`: NO_PRICE, or the outcome by all other rules.

    A price over STEP from the last accepted one waits. The next look frees it when it confirms it (see `jump`): the
    next event of its series, or, where the source looks at everything at once, the next moment of the file. An offer
    that was not for sale in between begins anew.
    """
    result = Settled(np.zeros(rule.shape, bool), np.full(rule.shape, np.nan), np.zeros(rule.shape, np.int8))
    looks = np.unique(history.at_s) if history.is_snapshots else np.empty(0)
    for number in np.unique(history.owners()[_jumps(history, rule, sound)]):
        where = slice(int(history.starts[number]), int(history.starts[number + 1]))
        series = _Series(
            at_s=history.at_s[where].tolist(),
            usd_per_hour=history.usd_per_hour[where].tolist(),
            is_sound=sound[where].tolist(),
            has_price=(rule[where] != NO_PRICE).tolist(),
        )
        for place, freed_s in _waiting(series, _looks_after(series.at_s, looks)):
            event = where.start + place
            result.is_step[event], result.freed_s[event], result.freed_rule[event] = True, freed_s, rule[event]
    return result


def _looks_after(at_s: list[float], looks: Floats) -> list[float]:
    """Return, for each event, the next look at which its price stood unchanged; NaN where the next news came first."""
    number = np.searchsorted(looks, at_s, side="right")
    following = np.append(looks, np.nan)[number]
    news = np.append(at_s[1:], np.inf)
    return [look if look < new else math.nan for look, new in zip(following.tolist(), news.tolist(), strict=True)]


def _waiting(series: _Series, confirmed_s: list[float]) -> Iterator[tuple[int, float]]:
    """Yield the place of each step in its series, and when it was freed (NaN: never)."""
    last = held = math.nan
    for place, price in enumerate(series.usd_per_hour):
        if not series.is_sound[place]:
            last = last if series.has_price[place] else math.nan
            held = math.nan
        elif not is_step(last, price) or confirms(last, held, price):
            last, held = price, math.nan
        else:
            held = price
            yield place, confirmed_s[place]
            if not math.isnan(confirmed_s[place]):
                last, held = price, math.nan


def _jumps(history: History, rule: Codes, sound: Bools) -> Bools:
    """Mark the events over STEP from the sound price before them. No mark in a series: no step in it either."""
    events = np.arange(rule.size)
    before = _latest(sound, events)
    anew = _latest(rule == NO_PRICE, events)
    asked = np.flatnonzero(sound & (before >= history.starts[history.owners()]) & (before > anew))
    price, last = history.usd_per_hour[asked], history.usd_per_hour[before[asked]]
    jumps = np.zeros(rule.shape, dtype=bool)
    jumps[asked] = np.abs(price - last) > STEP * last
    return jumps


def _latest(marked: Bools, events: Ints) -> Ints:
    """Return, for each event, the last marked one before it; -1 where there is none."""
    return np.append(-1, np.maximum.accumulate(np.where(marked, events, -1)))[:-1]
