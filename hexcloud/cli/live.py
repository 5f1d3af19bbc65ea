"""The live view of a run: plan and saving, nodes, throughput, reward, staleness, money, events."""

from typing import TYPE_CHECKING

from hexcloud.cli.picture import Picture, emulation_note

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hexcloud.domain.fleet import Node

_EVENTS_SHOWN = 8
_RIVALS_SHOWN = 3
_BAR = 30


def live_view(picture: Picture) -> "RenderableType":
    """Return everything that a user watches, as one block."""
    from rich.console import Group

    run = picture.run
    head = f"run {run.id}: {run.state.value}" + (f" ({run.reason})" if run.reason else "")
    alarms = "\n".join(f"ALARM: {alarm}" for alarm in picture.alarms)
    parts = [head, alarms, emulation_note(run), _money(picture), _figures(picture), _nodes(picture), _ages(picture)]
    return Group(*(part for part in parts if part), _events(picture))


def _money(picture: Picture) -> str:
    budget = picture.run.policy.budget_usd
    spent = f"spent {picture.spent_usd:.2f}" + (f" of {budget:.2f} USD" if budget else " USD")
    rivals = [row for row in picture.baselines if row.usd_per_hour][:_RIVALS_SHOWN]
    first = picture.first_usd_per_hour
    savings = [f"{1 - first / (row.usd_per_hour or 1):.0%} under {row.name}" for row in rivals] if first else []
    began = f", at the start {', '.join(savings)}" if savings else ""
    return f"plan {picture.usd_per_hour:.2f} USD/h{began}; {spent}"


def _figures(picture: Picture) -> str:
    view, target = picture.view, picture.target_tokens_per_s
    if view is None:
        return "the coordinator has not answered yet"
    wanted = f" of {target:.0f}" if target else ""
    before = "" if view.accuracy_before is None else f", accuracy before RL {view.accuracy_before:.2f}"
    return (
        f"step {view.version} of {view.steps}, {picture.tokens_per_s:.0f}{wanted} tok/s, reward {view.reward:.3f}"
        f"{before}, overlap {view.overlap_share:.0%}, {view.outstanding} samples under way, "
        f"{view.dropped_samples} dropped"
    )


def _nodes(picture: Picture) -> "RenderableType":
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("node", "offer", "status", "version", "running", "tok/s"):
        table.add_column(name, justify="left" if name in {"node", "offer", "status"} else "right")
    for node in picture.nodes:
        table.add_row(node.slot, node.offer_id, node.status.value, *_work(node, picture))
    return table


def _work(node: "Node", picture: Picture) -> tuple[str, str, str]:
    known = picture.view.nodes if picture.view else ()
    seen = next((one for one in known if one.node_id == node.id), None)
    if seen is None:
        return "-", "-", "-"
    return str(seen.version), f"{seen.running}/{seen.slots}", f"{seen.tokens_per_s:.0f}"


def _ages(picture: Picture) -> str:
    ages = picture.view.staleness_histogram if picture.view else {}
    total = max(1, sum(ages.values()))
    mean, _ = picture.staleness
    rows = [f"staleness, mean {mean:.2f}, at most {picture.run.workload.eta} allowed"] if ages else []
    rows += [f"  {age} {'█' * round(_BAR * count / total):<{_BAR}} {count}" for age, count in sorted(ages.items())]
    return "\n".join(rows)


def _events(picture: Picture) -> str:
    began_s = picture.events[0].at_s if picture.events else 0.0
    shown = (event for event in picture.events[-_EVENTS_SHOWN:])
    return "\n".join(f"  {(event.at_s - began_s) / 3600:6.2f} h  {event.kind:15} {event.text}" for event in shown)
