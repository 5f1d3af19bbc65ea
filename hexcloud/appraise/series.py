"""Series gate: the rules of the gate over a whole recorded history at once, one outcome for each event.

It comes to what `gate` would say if each look of the source were judged when it was made: spot is compared with the
on-demand price accepted at that moment, and a step waits for a later look that agrees with it. A refused event never
changes what is believed of the rest: the last accepted price stands, with its age.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from hexcloud.appraise.history import Bools, Codes, Events, Floats, History, Ints, Machine, Standing, history_of
from hexcloud.appraise.known import Known
from hexcloud.appraise.limits import (
    FLOOR_SHARE,
    GPU_COUNTS,
    OVER_ON_DEMAND,
    SAME,
    SMALL,
    STEP,
    cheap_share,
)
from hexcloud.appraise.steps import NO_PRICE, Settled, settle
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.market import Finding, Outcome
from hexcloud.domain.offer import OfferId, Tenure

RULES: tuple[tuple[str, Outcome, str], ...] = (
    ("", Outcome.ACCEPT, ""),
    ("no_price", Outcome.REJECT, "the price cannot be read"),
    ("price_not_positive", Outcome.REJECT, "the price is not a positive number"),
    ("spot_over_on_demand", Outcome.REJECT, "spot is over the machine's own on-demand price at that time"),
    ("bad_count", Outcome.REJECT, "that is no number of GPUs that a machine can have"),
    ("impossible_count", Outcome.QUARANTINE, "no machine is known to have that many GPUs"),
    ("far_too_cheap", Outcome.QUARANTINE, "far under the usual price per GPU"),
    ("step", Outcome.QUARANTINE, f"over {STEP:.0%} from the last accepted price; waits for a later look that agrees"),
    ("floor_price", Outcome.FLAG, "at the floor discount: capacity unproven"),
    ("spot_equals_on_demand", Outcome.FLAG, "spot equals on-demand: capacity unproven"),
)
"""Name, outcome and reason of each rule; an event's rule is its place here."""
ACCEPTED, UNREADABLE, NOT_POSITIVE, OVER, BAD_COUNT, ODD_COUNT, TOO_CHEAP, STEPPED, FLOOR, EQUAL = range(len(RULES))
_FLAGS = (FLOOR, EQUAL)
_SOUND = (ACCEPTED, *_FLAGS)
_SPOT = f"/{Tenure.SPOT.value}"
MAX_ECHOES = 2_000_000
"""A hundred times those of the longest recording tried here; a small file with many zones can ask for billions."""


class _Fair(NamedTuple):
    """What a spot price is held against; arrays by series."""

    twins: Ints
    """The on-demand series of the same machine; -1 where there is none."""
    usual_usd_per_hour: Floats
    gpu_counts: Floats
    """1 where nobody knows."""


@dataclass(frozen=True, eq=False)
class Judged:
    """A history and what the gate made of it. Event arrays have the history's shape."""

    history: History
    """As recorded, and a spot price once more wherever its on-demand price changed: it was judged again then."""
    rule: Codes
    """Place in RULES; NO_PRICE for an event without a price, of which there is nothing to doubt."""
    settled: Settled
    echo: Bools
    """True for what was judged again without being news."""

    def counts(self) -> dict[tuple[Outcome, str], int]:
        """Return how many recorded events came to each outcome and rule."""
        numbers = np.bincount(self.rule[(self.rule >= 0) & ~self.echo], minlength=len(RULES))
        return {(RULES[rule][1], RULES[rule][0]): int(count) for rule, count in enumerate(numbers) if count}

    def findings(self, source: str, offers: Iterable[OfferId] | None = None) -> tuple[Finding, ...]:
        """Return one finding per rule, with how often it was met and the first example; of all offers, or of some."""
        asked = np.full(self.rule.shape, offers is None)
        for offer_id in offers or ():
            asked[self.history.series(offer_id)] = True
        met = [np.flatnonzero(asked & (self.rule == rule)) for rule in range(len(RULES))]
        return tuple(self._finding(source, rule, met[rule]) for rule in range(1, len(RULES)) if met[rule].size)

    def believed(self) -> History:
        """Return the history that may be believed: accepted and flagged prices, steps from when they were freed."""
        return self._with_freed(np.isin(self.rule, (NO_PRICE, *_SOUND)), self.history.usd_per_hour)

    def in_force(self) -> History:
        """Return the same with a gap (NaN) for as long as the last word is not believed."""
        sound = np.isin(self.rule, _SOUND)
        return self._with_freed(np.ones(sound.shape, dtype=bool), np.where(sound, self.history.usd_per_hour, np.nan))

    def _with_freed(self, kept: Bools, usd_per_hour: Floats) -> History:
        old, freed, owners = self.history, np.isfinite(self.settled.freed_s), self.history.owners()
        owner = np.concatenate([owners[kept], owners[freed]])
        at_s = np.concatenate([old.at_s[kept], self.settled.freed_s[freed]])
        order = np.lexsort((at_s, owner))
        rule = np.concatenate([self.rule[kept], self.settled.freed_rule[freed]])
        return replace(
            old,
            starts=np.searchsorted(owner[order], np.arange(len(old.ids) + 1)),
            at_s=at_s[order],
            usd_per_hour=np.concatenate([usd_per_hour[kept], old.usd_per_hour[freed]])[order],
            standing=np.concatenate([old.standing[kept], old.standing[freed]])[order],
            unproven=np.isin(rule, _FLAGS)[order],
        )

    def _finding(self, source: str, rule: int, events: Ints) -> Finding:
        name, outcome, reason = RULES[rule]
        series = self.history.owners()[events]
        first = int(events[0])
        price, day = self.history.usd_per_hour[first], datetime.fromtimestamp(float(self.history.at_s[first]), UTC)
        met = f"{len(events)} times, {len(np.unique(series))} offers; first {price:.4g} USD/h on {day:%Y-%m-%d}"
        return Finding(
            source=source,
            row=self.history.ids[int(series[0])],
            field="gpu_count" if rule in (BAD_COUNT, ODD_COUNT) else "price",
            outcome=outcome,
            reason=f"{reason} ({met})",
            rule=name,
        )


def judge(history: History, known: Known, machines: Mapping[str, Machine] | None = None) -> Judged:
    """Judge every event. `machines`: GPU facts of instance types, which win over those of the recording.

    Raises ConfigError when on-demand prices change too often for the number of their spot prices.
    """
    facts = {**history.machines, **(machines or {})}
    twins = _twins(history.ids)
    alone = _judged(history, _levels(history, known, facts), np.zeros(history.at_s.shape, dtype=bool))
    on_demand = alone.in_force()
    echoed, echo = _with_echoes(history, twins, on_demand)
    rule = _levels(echoed, known, facts)
    usual = np.array([_usual_price(offer_id, known, facts) for offer_id in history.ids], np.float64)
    counts = np.array([_gpu_count(offer_id, facts) for offer_id in history.ids], np.float64)
    return _judged(echoed, _against(echoed, rule, on_demand, _Fair(twins, usual, counts)), echo)


def _judged(history: History, rule: Codes, echo: Bools) -> Judged:
    """Add what only time can tell: steps, and what frees them."""
    settled = settle(history, rule, np.isin(rule, _SOUND))
    return Judged(history, np.where(settled.is_step, STEPPED, rule).astype(np.int8), settled, echo)


def _levels(history: History, known: Known, machines: Mapping[str, Machine]) -> Codes:
    """What each event shows by itself: no positive price, an impossible machine, a price far under the usual one."""
    owners, price = history.owners(), history.usd_per_hour
    least = np.array([_least_price(offer_id, known, machines) for offer_id in history.ids], np.float64)[owners]
    count = np.array([_count_rule(offer_id, known, machines) for offer_id in history.ids], np.int8)[owners]
    positive = np.isfinite(price) & (price > 0)
    doubts = [history.standing != Standing.PRICED, np.isnan(price), ~positive, count != ACCEPTED, price < least]
    rules = [np.full(count.shape, rule, np.int8) for rule in (NO_PRICE, UNREADABLE, NOT_POSITIVE, 0, TOO_CHEAP)]
    rules[3] = count
    return np.select(doubts, rules, np.int8(ACCEPTED))


def _least_price(offer_id: OfferId, known: Known, machines: Mapping[str, Machine]) -> float:
    """Return the least plausible price, USD/h; NaN where nobody knows."""
    share = cheap_share(offer_id.endswith(_SPOT), _gpu_count(offer_id, machines))
    return share * _usual_price(offer_id, known, machines)


def _gpu_count(offer_id: OfferId, machines: Mapping[str, Machine]) -> float:
    machine = machines.get(offer_id.rsplit("/", 2)[1])
    return machine.gpu_count if machine else 1.0


def _usual_price(offer_id: OfferId, known: Known, machines: Mapping[str, Machine]) -> float:
    """Return what the GPUs of a machine usually cost on demand, USD/h; NaN where nobody knows."""
    machine = machines.get(offer_id.rsplit("/", 2)[1])
    return known.usual_usd_per_gpu_hour.get(machine.gpu, np.nan) * machine.gpu_count if machine else np.nan


def _count_rule(offer_id: OfferId, known: Known, machines: Mapping[str, Machine]) -> int:
    """Return the rule that the machine's number of GPUs breaks."""
    instance_type = offer_id.rsplit("/", 2)[1]
    machine = machines.get(instance_type)
    if machine is None:
        return ACCEPTED
    if not machine.gpu_count >= 1 or not float(machine.gpu_count).is_integer():
        return BAD_COUNT
    is_known = machine.gpu_count in GPU_COUNTS or known.odd_counts.get(instance_type) == machine.gpu_count
    return ACCEPTED if is_known else ODD_COUNT


def _twins(ids: tuple[OfferId, ...]) -> Ints:
    """Return, for each spot series, the region's on-demand series of the same machine; -1 where there is none."""
    place = {offer_id: number for number, offer_id in enumerate(ids)}
    return np.array([place.get(_twin(offer_id), -1) for offer_id in ids], dtype=np.int64)


def _twin(offer_id: OfferId) -> OfferId:
    cloud, region, _, instance_type, tenure = offer_id.split("/", 4)
    name = f"{cloud}/{region}/-/{instance_type}/{Tenure.ON_DEMAND.value}" if tenure == Tenure.SPOT else ""
    return OfferId(name)


def _against(history: History, rule: Codes, on_demand: History, fair: _Fair) -> Codes:
    """Compare spot with its on-demand price of the moment, where that one is believed, else with what is usual."""
    owners = history.owners()
    is_spot = np.array([offer_id.endswith(_SPOT) for offer_id in history.ids], dtype=bool)[owners]
    asked = np.flatnonzero(is_spot & (rule == ACCEPTED))
    twin = fair.twins[owners[asked]]
    event = np.where(twin >= 0, on_demand.last_event(np.maximum(twin, 0), history.at_s[asked]), -1)
    full = np.where(event >= 0, on_demand.usd_per_hour[event], np.nan)
    dear = np.where(np.isnan(full), fair.usual_usd_per_hour[owners[asked]], full)
    spot = history.usd_per_hour[asked]
    counts = fair.gpu_counts[owners[asked]]
    share = dear / np.maximum(counts, 1)  # a product would overflow for the largest floats that a source may say
    is_one_gpus = (counts >= SMALL) & (np.abs(spot - share) <= (SAME - 1) * share)
    is_floor = (spot < dear * FLOOR_SHARE) | is_one_gpus
    doubts = [spot > full * OVER_ON_DEMAND, is_floor, spot >= full / OVER_ON_DEMAND]
    judged = rule.copy()
    judged[asked] = np.select(doubts, [OVER, FLOOR, EQUAL], ACCEPTED)
    return judged


def _with_echoes(history: History, twins: Ints, on_demand: History) -> tuple[History, Bools]:
    """Repeat a spot price at each change of its on-demand price: a snapshot showed both, and both were judged."""
    nothing = np.zeros(history.at_s.shape, dtype=bool)
    spot = np.flatnonzero(twins >= 0)
    if not history.is_snapshots or not spot.size:
        return history, nothing
    lengths = np.diff(on_demand.starts)[twins[spot]]
    if lengths.sum() > MAX_ECHOES:
        changes = f"{spot.size:,} spot series change their on-demand price {lengths.sum():,} times"
        raise ConfigError(f"{changes}, over {MAX_ECHOES:,}; split the recording by time or region")
    series = np.repeat(spot, lengths)
    offsets = np.arange(lengths.sum()) - np.repeat(lengths.cumsum() - lengths, lengths)
    at_s = on_demand.at_s[on_demand.starts[twins[series]] + offsets]
    event = history.last_event(series, at_s)
    new = (event >= 0) & (history.at_s[event] < at_s) & (history.standing[event] == Standing.PRICED)
    price, standing = history.usd_per_hour[event[new]], history.standing[event[new]]
    recorded = Events(history.ids, history.owners(), history.at_s, history.usd_per_hour, history.standing)
    echoes = Events(history.ids, series[new], at_s[new], price, standing)
    echoed = history_of((recorded, echoes), history.is_snapshots, history.machines)
    is_known = history.at_s[history.last_event(echoed.owners(), echoed.at_s)] == echoed.at_s
    return echoed, ~is_known
