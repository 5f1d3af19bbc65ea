"""page: the report of `plan --html`, one file that needs nothing else: no link, no script, the picture inside."""

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from hexcloud.cli.explained import gain_in_words
from hexcloud.cli.planned import allocation_lines

if TYPE_CHECKING:
    from hexcloud.cli.planned import Planned
    from hexcloud.planner.explain import WhyNot
    from hexcloud.planner.shadow import ShadowPrice

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1d2733; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.facts { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1.2rem 0; }
.fact { border: 1px solid #d5dde5; border-radius: 8px; padding: .6rem 1rem; }
.fact b { display: block; font-size: 1.3rem; color: #00798c; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #e3e9ef; vertical-align: top; }
th { color: #5b6b7b; font-weight: 600; } td.number, th.number { text-align: right; white-space: nowrap; }
img { max-width: 100%; } .quiet { color: #5b6b7b; }
"""


@dataclass(frozen=True)
class Report:
    """Everything that the page tells."""

    planned: "Planned"
    prices: tuple["ShadowPrice", ...]
    why_not: tuple["WhyNot", ...]
    frontier_png: bytes


def html(report: Report) -> str:
    """Return the page."""
    parts = (
        _head(report.planned),
        _facts(report.planned),
        _machines(report.planned),
        _rules(report.prices),
        _why_not(report.why_not),
        _rivals(report.planned),
        _frontier(report),
        _rest(report.planned),
    )
    title = f"hexcloud plan: {report.planned.given.workload.model.name}"
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n" + "\n".join(parts) + "\n</body>\n</html>\n"
    )


def _head(planned: "Planned") -> str:
    workload, policy = planned.given.workload, planned.given.policy
    wanted = policy.target_samples_per_s
    asked = "" if wanted is None else f", {wanted * workload.tokens_per_sample:.0f} tok/s wanted"
    asked += "" if policy.max_usd_per_hour is None else f", at most {policy.max_usd_per_hour:.2f} USD/h"
    text = f"policy {policy.name}{asked}; prices of {planned.price_dates}"
    return f'<h1>{escape(workload.model.name)}</h1>\n<p class="quiet">{escape(text)}</p>'


def _facts(planned: "Planned") -> str:
    plan = planned.result.plan
    allocation, forecast = plan.allocation, plan.forecast
    bound = allocation.proof.lower_bound_usd_per_hour
    proof = f"gap {allocation.proof.gap:.2%}" if bound is None else f"no plan is under {bound:.2f} USD/h"
    facts = (
        (f"{allocation.usd_per_hour:.2f} USD/h", proof),
        (f"{forecast.tokens_per_s:.0f} tok/s", f"a step every {forecast.step_s:.1f} s"),
        (f"{forecast.staleness:.1f} versions", f"expected staleness, {planned.given.workload.eta} allowed"),
        (f"{forecast.weight_sync_s:.1f} s", "until every machine has new weights"),
        (f"{planned.solve_s:.2f} s", "to solve"),
    )
    boxes = (f'<div class="fact"><b>{escape(value)}</b>{escape(what)}</div>' for value, what in facts)
    return '<div class="facts">\n' + "\n".join(boxes) + "\n</div>"


def _machines(planned: "Planned") -> str:
    rows = []
    for line in allocation_lines(planned.result.plan):
        offer = planned.offers[line.offer]
        gpus, usd, day = f"{offer.gpu_count * line.count} x {offer.gpu}", line.total_usd_per_hour, offer.as_of
        rows.append((line.offer, line.role.value, gpus, str(line.count), f"{usd:.2f}", f"{day:%Y-%m-%d}"))
    allocation = planned.result.plan.allocation
    sums = (
        f"rent {allocation.rent_usd_per_hour:.2f}, egress {allocation.egress_usd_per_hour + 0.0:.2f}, start-up "
        f"{allocation.one_off_usd_per_hour:.2f}, expected losses {allocation.risk_usd_per_hour:.2f} USD/h"
    )
    table = _table(("offer", "role", "GPUs", "#count", "#USD/h", "#price of"), rows)
    return f'<h2>The plan</h2>\n{table}\n<p class="quiet">{escape(sums)}</p>'


def _rules(prices: tuple["ShadowPrice", ...]) -> str:
    rows = ((price.rule, price.meaning, price.change, gain_in_words(price)) for price in prices)
    text = "Solved again with each rule a unit looser; machines are whole, so a unit may be worth nothing."
    note = f'<p class="quiet">{text}</p>'
    table = _table(("rule", "what it demands", "looser by", "#worth"), rows)
    return f"<h2>What holds it where it is</h2>\n{table}\n{note}"


def _why_not(answers: tuple["WhyNot", ...]) -> str:
    rows = ((answer.pattern, answer.reason) for answer in answers)
    return "<h2>Why not</h2>\n" + _table(("GPU", "the cheapest way to use it"), rows)


def _rivals(planned: "Planned") -> str:
    rows = []
    for row in planned.baselines:
        saving = planned.saving(row)
        if row.usd_per_hour is not None and saving is not None:
            rows.append((row.name, f"{row.usd_per_hour:.2f}", f"{round(saving, 2) + 0.0:.0%}"))
    unable = len(planned.baselines) - len(rows)
    note = f"{unable} more buyers cannot do the job, or pay several times as much." if unable else ""
    table = _table(("buyer", "#USD/h", "#the plan saves"), rows)
    return f'<h2>What simpler buyers pay</h2>\n{table}\n<p class="quiet">{note}</p>'


def _frontier(report: Report) -> str:
    data = base64.b64encode(report.frontier_png).decode("ascii")
    return f'<h2>Cost against throughput</h2>\n<img alt="cost against throughput" src="data:image/png;base64,{data}">'


def _rest(planned: "Planned") -> str:
    from hexcloud.planner.explain import rejected_counts

    counts = rejected_counts(planned.result.rejections)
    shown = ", ".join(f"{count} {rule}" for rule, count in counts.items())
    return f'<p class="quiet">Offers not in the plan: {escape(shown or "none")}.</p>'


def _table(names: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table; columns whose name begins with # hold figures."""
    kinds = [' class="number"' if name.startswith("#") else "" for name in names]
    head = "".join(f"<th{kind}>{escape(name.lstrip('#'))}</th>" for name, kind in zip(names, kinds, strict=True))
    lines = [
        "<tr>" + "".join(f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in rows
    ]
    return "<table>\n<tr>" + head + "</tr>\n" + "\n".join(lines) + "\n</table>"
