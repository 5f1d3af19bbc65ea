"""Half-written: is an answer too little to replace the last good one?"""

from collections.abc import Collection

from hexcloud.appraise.limits import LEAST_PART, STEP_AGREES
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.row import Part


class Short(Frozen):
    """An answer that was taken for half-written: a second one like it, with other content, is believed."""

    prices: int
    content: str


def problem_of(part: Part, last_priced: int, short: Short | None = None) -> str:
    """Return one line for people on why the last good answer stands; empty when the part may replace it.

    `last_priced` is how many prices the last good answer for this source and region had, believed or not, so that like
    is compared with like; 0 when there was none yet. `short` is the answer before this one, if it was taken for
    half-written.
    """
    if part.problem:
        return part.problem
    priced = part.priced
    if not priced and (last_priced or not part.quotas):
        return f"{_who(part)} answered without a single price; {_stands(last_priced)}"
    if priced < LEAST_PART * last_priced and not _says_it_again(part, priced, short):
        return f"{_who(part)} listed {priced} prices where it had {last_priced}: half-written; {_stands(last_priced)}"
    return ""


def is_cut_short(listed: Collection[str], last: Collection[str]) -> bool:
    """Does a list of regions lack so many of the last ones that it is no reason to take them for closed?"""
    return len(set(last) & set(listed)) < LEAST_PART * len(last)


def _says_it_again(part: Part, priced: int, short: Short | None) -> bool:
    if short is None or short.content == part.content:
        return False
    return abs(priced - short.prices) <= STEP_AGREES * short.prices


def _who(part: Part) -> str:
    where = part.cloud if part.region == "*" else f"{part.cloud}/{part.region}"
    return f"{part.source}: {where}"


def _stands(last_priced: int) -> str:
    return f"the last good {last_priced} stand" if last_priced else "there is nothing older to fall back on"
