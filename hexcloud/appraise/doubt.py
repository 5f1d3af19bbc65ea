"""Doubt: what speaks against a row, as a value."""

from typing import NamedTuple

from hexcloud.domain.market import Outcome


class Doubt(NamedTuple):
    """One rule that a row breaks."""

    outcome: Outcome
    rule: str
    field: str
    """Of the row."""
    reason: str


def reject(rule: str, field: str, reason: str) -> Doubt:
    """Return the doubt that a row cannot be true."""
    return Doubt(Outcome.REJECT, rule, field, reason)


def quarantine(rule: str, field: str, reason: str) -> Doubt:
    """Return the doubt that a row is true only if somebody confirms it."""
    return Doubt(Outcome.QUARANTINE, rule, field, reason)


def flag(rule: str, field: str, reason: str) -> Doubt:
    """Return the doubt that there is anything to buy at a price that is true."""
    return Doubt(Outcome.FLAG, rule, field, reason)
