"""`hexcloud report`: what a run did, in measured figures."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hexcloud.cli.find import find_run
from hexcloud.cli.options import AsJson, RunName
from hexcloud.cli.output import console, print_json, say

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hexcloud.domain.report import Report
    from hexcloud.domain.run import RunRecord

_BAR = 30


def report(run: RunName = None, as_json: AsJson = False) -> None:
    """Show what a run did: rewards, staleness, throughput, money, moves, losses."""
    from hexcloud import wiring

    found = find_run(wiring.open_store(), run)
    bring_results(found)
    show_report(wiring.report_of(found.id), as_json)


def show_report(found: "Report", as_json: bool) -> None:
    """Print a report on stdout."""
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        console().print(report_view(found))


def bring_results(run: "RunRecord") -> None:
    """Copy what a real run left in its store; while that is away the report tells what is known here."""
    from hexcloud import wiring
    from hexcloud.domain.errors import ConfigError, StoreError

    try:
        wiring.bring_results(run)
    except (ConfigError, StoreError) as error:
        say(f"steps and result were not copied from the run's store: {error}")


def report_view(found: "Report") -> "RenderableType":
    """Return a report for a reader."""
    from rich.console import Group

    sections = [_facts(found), _ages(found), _replans(found), _changes(found), _losses(found), _waste(found)]
    sections.append(_rivals(found))
    return Group(f"Report of run {found.run} ({found.state})", *(section for section in sections if section))


def _facts(found: "Report") -> "RenderableType":
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in _rows(found):
        table.add_row(name, value)
    return table


def _rows(found: "Report") -> list[tuple[str, str]]:
    target = found.target_tokens_per_s
    share = f" ({found.achieved_tokens_per_s / target:.0%} of the target {target:.0f})" if target else ""
    accuracy = f"{_number(found.accuracy_before)} -> {_number(found.accuracy_after)}"
    kinds = ", ".join(f"{kind} {usd:.2f}" for kind, usd in found.spent_by_kind.items())
    return [
        ("steps", str(found.steps)),
        ("accuracy before -> after RL", accuracy),
        ("reward, first -> last fifth", f"{found.reward_first_fifth:.3f} -> {found.reward_last_fifth:.3f}"),
        ("throughput", f"{found.achieved_tokens_per_s:.0f} trained tok/s{share}"),
        ("clock", f"1 wall second = {found.clock_scale:.4g} run seconds"),
        ("staleness", f"mean {found.mean_staleness:.2f}, max {found.max_staleness}, allowed {found.eta}"),
        ("dropped samples", str(found.dropped_samples)),
        ("overlap of trainer and rollout", f"{found.overlap_share:.0%}"),
        ("spent", f"{found.spent_usd:.2f} USD ({kinds or 'nothing'}), last plan {found.usd_per_hour:.2f} USD/h"),
        ("moves for money", f"{found.moves} in {len(found.replans)} re-plans"),
        ("nodes left", str(found.nodes_left)),
        ("output", found.output),
    ]


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.3f}"


def _ages(found: "Report") -> str:
    ages = found.staleness_histogram
    total = max(1, sum(ages.values()))
    bars = (f"  {age} {'█' * round(_BAR * count / total):<{_BAR}} {count}" for age, count in ages.items())
    return "\nversions between a sample's oldest token and its training:\n" + "\n".join(bars) if ages else ""


def _replans(found: "Report") -> "RenderableType | None":
    rows = [
        (
            f"{row.time_h:.2f}",
            row.trigger,
            row.verdict,
            f"{row.usd_per_hour_before:.2f} -> {row.usd_per_hour_after:.2f}",
            row.reason,
        )
        for row in found.replans
    ]
    return _table("Re-plans", ("hour", "trigger", "verdict", "USD/h", "reason"), rows)


def _changes(found: "Report") -> "RenderableType | None":
    rows = [
        (f"{row.time_h:.2f}", row.kind, row.node, f"{row.idle_30s_after:.1f} s", f"{row.median_idle_30s:.1f} s")
        for row in found.fleet_changes
    ]
    return _table(
        "Changes of the rollout fleet", ("hour", "change", "node", "trainer idle in 30 s", "median idle in 30 s"), rows
    )


def _losses(found: "Report") -> "RenderableType | None":
    rows = [(f"{row.time_h:.2f}", row.node, row.cause, f"{row.trainer_waited_s:.1f} s") for row in found.losses]
    return _table("Losses", ("hour", "node", "cause", "trainer waited in 30 s"), rows)


def _waste(found: "Report") -> "RenderableType | None":
    rows = [(", ".join(row.nodes), row.offer_id, f"{row.usd:.2f}", row.cause) for row in found.waste]
    return _table("Paid for machines that never worked", ("nodes", "offer", "USD", "cause"), rows)


def _rivals(found: "Report") -> "RenderableType | None":
    from hexcloud.controller.report import FIRST_PLAN

    able = [(row.name, row.usd_per_hour) for row in found.baselines if row.usd_per_hour is not None]
    own = found.first_usd_per_hour
    rows = [(FIRST_PLAN, f"{own:.2f}")] if own is not None and able else []
    rows += [(name, f"{usd_per_hour:.2f}") for name, usd_per_hour in able]
    terms = "rent, egress, start-up over the horizon and expected losses"
    return _table(f"What simpler buyers would have paid at the start ({terms})", ("buyer", "USD/h"), rows)


def _table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> "RenderableType | None":
    from rich.table import Table

    if not rows:
        return None
    table = Table(title=f"\n{title}", title_justify="left")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
