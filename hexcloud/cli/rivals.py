"""rivals: what simpler buyers pay, as `plan` shows it: the cheapest, those with a name, and how many more there are."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hexcloud.domain.report import BaselineRow

CHEAPEST = 6
"""Rows that are always shown; after them come the buyers that have a name of their own."""

Saving = Callable[["BaselineRow"], float | None]


def rivals_view(rows: "tuple[BaselineRow, ...]", saving: Saving) -> "RenderableType":
    """Return the buyers for a reader."""
    from rich.console import Group
    from rich.table import Table

    table = Table(title="What simpler buyers pay for the same throughput", title_justify="left")
    table.add_column("buyer")
    table.add_column("USD/h", justify="right")
    table.add_column("you save", justify="right")
    for row in shown_rows(rows):
        table.add_row(row.name, f"{row.usd_per_hour:.2f}", share(saving(row)))
    return Group(table, *(line for line in (hidden_rows(rows),) if line))


def shown_rows(rows: "tuple[BaselineRow, ...]") -> "list[BaselineRow]":
    """Return the priced rows that a reader sees: the cheapest, and the cheapest of each kind of buyer."""
    from hexcloud.planner.baselines import GREEDY, ON_DEMAND, SKYPILOT

    able = [row for row in rows if row.usd_per_hour is not None]
    single = {"on-demand": "", "any tenure": ""}
    for row in reversed(able):
        kind = row.name.rpartition(", ")[2]
        single |= {kind: row.name} if kind in single else {}
    named = {GREEDY, ON_DEMAND, SKYPILOT, *single.values()}
    return [row for number, row in enumerate(able) if number < CHEAPEST or row.name in named]


def hidden_rows(rows: "tuple[BaselineRow, ...]") -> str:
    """Say how many buyers are not shown, and why."""
    from hexcloud.planner.shop import CANNOT

    shown = shown_rows(rows)
    prices = [row.usd_per_hour for row in rows if row.usd_per_hour is not None and row not in shown]
    unable = sum(row.usd_per_hour is None and row.reason.startswith(CANNOT) for row in rows)
    dear = sum(row.usd_per_hour is None for row in rows) - unable
    parts = [
        *([_more(prices)] if prices else []),
        *([f"{dear} {_pay(dear)} over {_times()} times as much as the plan"] if dear else []),
        *([f"{unable} cannot make it"] if unable else []),
    ]
    return f"not shown: {', '.join(parts)} (--json lists all)" if parts else ""


def _more(prices: list[float]) -> str:
    """Say what the other buyers pay: one price where all read alike."""
    least, most = f"{min(prices):.2f}", f"{max(prices):.2f}"
    return f"{len(prices)} more {_pay(len(prices))} {least if least == most else f'{least} to {most}'} USD/h"


def _pay(buyers: int) -> str:
    return "pays" if buyers == 1 else "pay"


def rivals_fields(rows: "tuple[BaselineRow, ...]") -> list[dict[str, object]]:
    """Return all buyers for a machine; those without a price with the reason."""
    return [row.model_dump(mode="json") for row in rows]


def share(saving: float | None) -> str:
    """Return the share of a buyer's price that the plan saves."""
    return f"{round(saving or 0.0, 2) + 0.0:.0%}"  # + 0.0: a plan within its gap saves 0 %, not -0 %


def _times() -> str:
    from hexcloud.planner.baselines import DEAREST

    return f"{DEAREST:.0f}"
