"""`hexcloud catalog doctor`: what the gate makes of a price list, by reason, with examples."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from hexcloud.cli.options import AsJson
from hexcloud.cli.output import console, print_json
from hexcloud.cli.rules import RULES

if TYPE_CHECKING:
    from hexcloud.cli.examine import Examined
    from hexcloud.domain.row import Belief

OUTCOMES = ("accept", "flag", "quarantine", "reject")
BUNDLED = "A refresh that brings a price of it that is believed; the bundle itself is judged by facts alone, each time."
UNREAD = "once `hexcloud catalog refresh` has read this list"


def doctor(
    where: Annotated[
        str,
        typer.Argument(
            metavar="PATH|SOURCE",
            help="A folder or file of SkyPilot's catalog, a CSV of offers, `bundle`, or a source once refreshed.",
        ),
    ],
    examples: Annotated[int, typer.Option("--examples", help="Examples for each reason.", min=0)] = 3,
    as_json: AsJson = False,
) -> None:
    """Judge a price list and say what is not believed and why. Findings are no failure: exit 0."""
    from hexcloud.cli.examine import examine

    found = examine(where)
    if as_json:
        print_json(_as_json(where, found, examples))
    else:
        _show(where, found, examples)


def freed_by(where: str, beliefs: Iterable["Belief"]) -> str:
    """Return what frees rows that one rule doubts. Words of the user, and bills, count for what a refresh has read."""
    from hexcloud import wiring
    from hexcloud.cli.examine import BUNDLE

    doubted = tuple(beliefs)
    cure = RULES[doubted[0].rule][1]
    if doubted[0].outcome != "quarantine":
        return cure
    if where == BUNDLE:
        return BUNDLED
    waiting = {held.offer_id for held in wiring.open_prices().held()}
    return cure if any(one.row.id in waiting for one in doubted) else f"{cure.removesuffix('.')}, {UNREAD}."


def _groups(beliefs: Iterable["Belief"]) -> list[tuple[str, str, list["Belief"]]]:
    """Group what was doubted by outcome and rule: gravest first, then the most frequent."""
    by_rule: dict[tuple[str, str], list[Belief]] = defaultdict(list)
    for belief in beliefs:
        if belief.rule:
            by_rule[belief.outcome.value, belief.rule].append(belief)
    groups = [(outcome, rule, found) for (outcome, rule), found in by_rule.items()]
    return sorted(groups, key=lambda group: (-OUTCOMES.index(group[0]), -len(group[2]), group[1]))


def _spread(beliefs: list["Belief"], count: int) -> list["Belief"]:
    """Choose examples from all over a group rather than its first lines."""
    ordered = sorted(beliefs, key=lambda belief: (belief.row.cloud, belief.row.gpu, belief.row.id, belief.row.place))
    step = max(1, len(ordered) // max(1, count))
    return ordered[::step][:count]


def _counts(beliefs: Iterable["Belief"]) -> dict[str, int]:
    counted = Counter(belief.outcome.value for belief in beliefs)
    return {outcome: counted[outcome] for outcome in OUTCOMES}


def _clouds(beliefs: Iterable["Belief"]) -> dict[str, int]:
    return dict(Counter(belief.row.cloud for belief in beliefs).most_common())


def _as_json(where: str, found: "Examined", examples: int) -> dict[str, object]:
    return {
        "where": where,
        "rows": len(found.beliefs),
        "outcomes": _counts(found.beliefs),
        "rules": [
            {
                "rule": rule,
                "outcome": outcome,
                "count": len(beliefs),
                "clouds": _clouds(beliefs),
                "means": RULES[rule][0],
                "freed_by": freed_by(where, beliefs),
                "examples": [_example(belief) for belief in _spread(beliefs, examples)],
            }
            for outcome, rule, beliefs in _groups(found.beliefs)
        ],
        "unread": list(found.unread),
    }


def _example(belief: "Belief") -> dict[str, object]:
    row = belief.row
    return {
        "place": row.place,
        "offer": row.id,
        "gpu": row.gpu,
        "gpu_count": _finite(row.gpu_count),
        "price": _finite(row.price),
        "currency": row.currency,
        "reason": belief.reason,
    }


def _finite(number: float) -> float | None:
    """JSON has neither NaN nor infinity."""
    return number if math.isfinite(number) else None


def _show(where: str, found: "Examined", examples: int) -> None:
    tell = partial(console().print, soft_wrap=True)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in _counts(found.beliefs).items())
    tell(f"{len(found.beliefs)} rows: {counts}")
    for outcome, rule, beliefs in _groups(found.beliefs):
        clouds = ", ".join(f"{cloud} {count}" for cloud, count in _clouds(beliefs).items())
        tell(f"\n{outcome} {rule}: {len(beliefs)} ({clouds})\n  {RULES[rule][0]}")
        tell(f"  Freed by: {freed_by(where, beliefs)}")
        for belief in _spread(beliefs, examples):
            place = f"{belief.row.place}: " if belief.row.place else ""
            tell(f"  - {place}{belief.row.id}: {belief.reason}")
    for problem in found.unread:
        tell(f"\nnot read: {problem}")
