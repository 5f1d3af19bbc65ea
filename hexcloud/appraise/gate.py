"""Gate: every price row gets one outcome, with a reason that a user can read.

Reject (cannot be true): `no_price`, `price_not_positive`, `unknown_currency`, `bad_tenure`, `bad_date`, `bad_name`,
`bad_count`, `bad_size`, `spot_over_on_demand`. Quarantine (true only if somebody confirms it): `missing_part`,
`impossible_count`, `far_too_cheap` until a witness, a bill or the user does; `step` until a second snapshot does. Flag
(true, but perhaps nothing to buy): `not_listed`, `floor_price`, `spot_equals_on_demand`, `low_placement_score`. A row
that breaks several rules gets the gravest; level faults come before steps. Too dear is never an error: whoever is dear
is simply not bought.

Each market column stands alone: a machine may have a spot price without an on-demand price and the reverse. What is
usual comes from `Known`, never from the rows under judgement; a spot row is also held against the believed on-demand
rows of its batch. So a refused row never changes what is believed of the rest, the order of rows does not matter, and
gating what was believed changes nothing. Pure.
"""

import math
from collections.abc import Iterable

from hexcloud.appraise.capacity import OnDemand, unproven
from hexcloud.appraise.doubt import Doubt
from hexcloud.appraise.flaw import flaw
from hexcloud.appraise.jump import Steps
from hexcloud.appraise.known import Known
from hexcloud.appraise.level import level_fault
from hexcloud.appraise.scores import with_last_score
from hexcloud.appraise.units import moment, rate, usd_per_hour
from hexcloud.appraise.witness import Witnesses
from hexcloud.domain.market import Finding, Outcome
from hexcloud.domain.offer import Offer, Tenure
from hexcloud.domain.row import Belief, Row

_SCORES = range(1, 11)


def gate(rows: Iterable[Row], known: Known, content: str = "") -> tuple[Belief, ...]:
    """Return one belief for each distinct row, sorted by offer id. `content`: hash of their snapshot."""
    bench = _Bench(known, content)
    distinct = {row.model_dump_json(): row for row in (with_last_score(row, known) for row in rows)}
    judged: dict[str, Belief] = {}
    believed: list[tuple[Row, float]] = []
    for spelt, row in distinct.items():
        if row.tenure != Tenure.SPOT:
            belief = judged[spelt] = bench.judge(row)
            usd = usd_per_hour(row, known.usd_per_unit)
            if belief.is_believed and usd is not None:
                believed.append((row, usd))
    bench.on_demand = OnDemand(believed, known, bench.witnesses)
    judged |= {spelt: bench.judge(row) for spelt, row in distinct.items() if row.tenure == Tenure.SPOT}
    return tuple(judged[spelt] for spelt in sorted(judged, key=lambda spelt: (distinct[spelt].id, spelt)))


def offers_of(beliefs: Iterable[Belief]) -> tuple[Offer, ...]:
    """Return the offers of believed rows at the rates the beliefs carry, sorted by id; ids may repeat, see `merge`."""
    made = [_offer(belief) for belief in beliefs if belief.is_believed]
    offers = [offer for offer in made if offer is not None]
    return tuple(sorted(offers, key=lambda offer: (offer.id, offer.model_dump_json())))


def findings_of(beliefs: Iterable[Belief]) -> tuple[Finding, ...]:
    """Return what the gate had to say, one finding for each row not simply accepted, sorted by offer id."""
    findings = [
        Finding(
            source=belief.row.source,
            row=belief.row.id,
            field=belief.field,
            outcome=belief.outcome,
            reason=belief.reason,
            rule=belief.rule,
        )
        for belief in beliefs
        if belief.outcome is not Outcome.ACCEPT
    ]
    return tuple(sorted(findings, key=lambda finding: (finding.row, finding.model_dump_json())))


class _Bench:
    """The rules in order of gravity, with what each compares a row with."""

    def __init__(self, known: Known, content: str) -> None:
        self._known = known
        self.witnesses = Witnesses(known)
        self._steps = Steps(known, content)
        self.on_demand = OnDemand((), known, self.witnesses)

    def judge(self, row: Row) -> Belief:
        doubt, one_unit = self._doubt(row), rate(row.currency, self._known.usd_per_unit) or 1.0
        if doubt is None:
            return Belief(row=row, outcome=Outcome.ACCEPT, usd_per_unit=one_unit)
        outcome, rule, field, reason = doubt
        return Belief(row=row, outcome=outcome, rule=rule, field=field, reason=reason, usd_per_unit=one_unit)

    def _doubt(self, row: Row) -> Doubt | None:
        usd = usd_per_hour(row, self._known.usd_per_unit)
        if (doubt := flaw(row, self._known)) is not None or usd is None:
            return doubt
        if row.tenure == Tenure.SPOT and (doubt := self.on_demand.over(row, usd)) is not None:
            return doubt
        if (doubt := level_fault(row, usd, self._known, self.witnesses) or self._steps.doubt(row)) is not None:
            return doubt
        return None if row.id in self._known.proven else unproven(row, usd, self.on_demand)


def _offer(belief: Belief) -> Offer | None:
    """Return the offer of a believed row; None when a new rate makes no sum of its price."""
    row = belief.row
    price, as_of = row.list_price * belief.usd_per_unit, moment(row.as_of)
    if not 0 < price < math.inf or as_of is None:
        return None
    return Offer(
        id=row.id,
        cloud=row.cloud,
        region=row.region,
        zone=row.zone or None,
        zone_name=row.zone_name,
        instance_type=row.instance_type,
        tenure=Tenure(row.tenure),
        gpu=row.gpu,
        gpu_count=int(row.gpu_count),
        vcpus=row.vcpus,
        memory_gib=row.memory_gib,
        network_gb_per_s=row.network_gb_per_s,
        usd_per_hour=price,
        currency=row.currency,
        usd_per_unit=belief.usd_per_unit,
        proven=belief.outcome is Outcome.ACCEPT,
        placement_score=row.placement_score if row.placement_score in _SCORES else None,
        quota=row.quota,
        quota_units=row.quota_units,
        quota_global=row.quota_global,
        as_of=as_of,
        source=row.source,
    )
