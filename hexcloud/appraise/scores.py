"""Scores: AWS answers few questions a day about how likely a spot launch is, so its last word holds for a day."""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from hexcloud.appraise.known import Known, Scored
from hexcloud.appraise.units import moment
from hexcloud.domain.offer import OfferId
from hexcloud.domain.row import Row

HOLDS = timedelta(days=1)


def scores_of(rows: Iterable[Row]) -> Mapping[tuple[str, OfferId], Scored]:
    """Return the scores that rows carry, by source and offer, each with when it was given."""
    return {
        (row.source, row.id): Scored(row.placement_score, row.scored_as_of)
        for row in rows
        if row.placement_score is not None and row.scored_as_of
    }


def with_last_score(row: Row, known: Known) -> Row:
    """Return a row with its source's last score where it brings none; a score over a day old is forgotten."""
    last = None if row.placement_score is not None else known.scores.get((row.source, row.id))
    if last is None:
        return row
    given, now = moment(last.as_of), moment(row.as_of)
    if given is None or now is None or not given <= now <= given + HOLDS:
        return row
    return row.model_copy(update={"placement_score": last.score, "scored_as_of": last.as_of})
