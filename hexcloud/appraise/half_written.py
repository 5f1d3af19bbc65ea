"""Half-written: is an answer too little to replace the last good one?"""

import math

from hexcloud.appraise.limits import LEAST_PART, STEP_AGREES
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.row import Part


class Short(Frozen):
    """An answer that was taken for half-written: a second one like it, with other content, is believed."""

    prices: int
    content: str


def prices_in(part: Part) -> int:
    """Return how many rows of a part name a price that can be paid."""
    return sum(1 for row in part.rows if 0 < row.price < math.inf)


def problem_of(part: Part, last_rows: int, short: Short | None = None) -> str:
    """Return one line for people on why the last good answer stands; empty when the part may replace it.

    `last_rows` is how many rows of this source and region were believed last, 0 when there was no good answer yet;
    `short` the answer before this one, if it was taken for half-written.
    """
    if part.problem:
        return part.problem
    priced = prices_in(part)
    if not priced and (last_rows or not part.quotas):
        return f"{_who(part)} answered without a single price; {_stands(last_rows)}"
    if priced < LEAST_PART * last_rows and not _says_it_again(part, priced, short):
        return f"{_who(part)} listed {priced} prices where it had {last_rows}: half-written; {_stands(last_rows)}"
    return ""


def _says_it_again(part: Part, priced: int, short: Short | None) -> bool:
    if short is None or short.content == part.content:
        return False
    return abs(priced - short.prices) <= STEP_AGREES * short.prices


def _who(part: Part) -> str:
    where = part.cloud if part.region == "*" else f"{part.cloud}/{part.region}"
    return f"{part.source}: {where}"


def _stands(last_rows: int) -> str:
    return f"the last good {last_rows} stand" if last_rows else "there is nothing older to fall back on"
