"""page: the report of `plan --html`, one file that needs nothing else: no link, no script, the picture inside."""

import base64
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from hexcloud.cli.explained import gain_in_words
from hexcloud.cli.planned import allocation_lines
from hexcloud.cli.proven import bounds
from hexcloud.cli.rivals import share

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
        _proof(report.planned),
        _rules(report.prices),
        _why_not(report.why_not),
        _rivals(report.planned),
        _frontier(report),
        _rejections(report.planned),
        _findings(report.planned),
    )
    title = f"hexcloud plan: {report.planned.given.workload.model.name}"
    body = "\n".join(part for part in parts if part)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
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
    facts = (
        (f"{allocation.usd_per_hour:.2f} USD/h", f"proven to {allocation.proof.gap:.2%}"),
        (f"{forecast.tokens_per_s:.0f} tok/s", f"a step every {forecast.step_s:.1f} s"),
        (f"{forecast.staleness:.1f} versions", f"expected staleness, {planned.given.workload.eta} allowed"),
        (f"{forecast.weight_sync_s:.1f} s", "until every machine has new weights"),
        (f"{planned.solve_s:.2f} s", "to solve"),
    )
    boxes = (f'<div class="fact"><b>{escape(value)}</b>{escape(what)}</div>' for value, what in facts)
    return '<div class="facts">\n' + "\n".join(boxes) + "\n</div>"


def _proof(planned: "Planned") -> str:
    proof, tokens = planned.result.plan.allocation.proof, planned.given.workload.tokens_per_sample
    rows = [(bound.what, bound.text) for bound in bounds(proof, tokens)]
    rows += [("the plan is within", f"{proof.gap:.3%} of that"), ("branch-and-bound nodes", str(proof.nodes))]
    rows += [("rules that hold it", ", ".join(proof.binding) or "none")]
    return "<h2>The proof</h2>\n" + _table(("what", "value"), rows)


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
    rows = [
        (
            answer.pattern,
            answer.offer_id or "-",
            _usd(answer.usd_per_hour),
            _usd(answer.enters_at_usd_per_hour),
            answer.reason,
        )
        for answer in answers
    ]
    names = ("GPU", "the cheapest way to use it", "#USD/h", "#comes in at", "why not")
    return f"<h2>Why not</h2>\n{_table(names, rows)}" if rows else ""


def _usd(usd_per_hour: float | None) -> str:
    return "-" if usd_per_hour is None else f"{usd_per_hour:.2f}"


def _rivals(planned: "Planned") -> str:
    rows = []
    for row in planned.baselines:
        saving = planned.saving(row)
        rows.append((row.name, _usd(row.usd_per_hour), "-" if saving is None else share(saving), row.reason))
    if not rows:
        return ""
    table = _table(("buyer", "#USD/h", "#the plan saves", "why no price"), rows)
    return f"<h2>What simpler buyers pay</h2>\n{table}"


def _frontier(report: Report) -> str:
    if not report.frontier_png:
        return ""
    data = base64.b64encode(report.frontier_png).decode("ascii")
    return f'<h2>Cost against throughput</h2>\n<img alt="cost against throughput" src="data:image/png;base64,{data}">'


def _rejections(planned: "Planned") -> str:
    rejections = planned.result.rejections
    return _counted("Offers not in the plan", ((one.rule, one.offer_id, one.reason) for one in rejections))


def _findings(planned: "Planned") -> str:
    found = ((f"{one.outcome.value}: {one.rule}", one.row, one.reason) for one in planned.given.market.findings)
    return _counted("Rows of the catalog that were not believed as they stood", found)


def _counted(title: str, items: Iterable[tuple[str, str, str]]) -> str:
    """Return how many items there are of each reason, most first, with one of them as an example."""
    examples: dict[str, tuple[str, str]] = {}
    counts: Counter[str] = Counter()
    for rule, name, reason in items:
        counts[rule] += 1
        examples.setdefault(rule, (name, reason))
    if not counts:
        return ""
    ranked = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    rows = [(rule, str(count), *examples[rule]) for rule, count in ranked]
    return f"<h2>{title}</h2>\n" + _table(("reason", "#how many", "such as", "in words"), rows)


def _table(names: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table; columns whose name begins with # hold figures."""
    kinds = [' class="number"' if name.startswith("#") else "" for name in names]
    head = "".join(f"<th{kind}>{escape(name.lstrip('#'))}</th>" for name, kind in zip(names, kinds, strict=True))
    lines = [
        "<tr>" + "".join(f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in rows
    ]
    return "<table>\n<thead><tr>" + head + "</tr></thead>\n<tbody>\n" + "\n".join(lines) + "\n</tbody>\n</table>"
