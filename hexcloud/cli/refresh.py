"""`hexcloud catalog refresh`: read live prices, judge them, keep what is believed."""

import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hexcloud.cli.ages import age
from hexcloud.cli.options import AsJson
from hexcloud.cli.output import console, print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from hexcloud.controller.refresh import PartReport

Cloud = Annotated[
    list[str] | None,
    typer.Option("--cloud", help="Ask this cloud's own API: aws, gcp. May be repeated.", show_default="aws and gcp"),
]
Region = Annotated[
    list[str] | None, typer.Option("--region", help="Only these regions (* is any text).", show_default="all")
]
Folder = Annotated[
    Path | None,
    typer.Option("--from", help="Read SkyPilot's catalog files in this folder instead, such as ~/.sky/catalogs/v8."),
]
AsOf = Annotated[
    datetime | None, typer.Option("--as-of", help="When the files' prices were true (UTC).", show_default="file time")
]
Every = Annotated[str | None, typer.Option("--every", help="Again and again, such as 10m; ends with Ctrl-C.")]


def refresh(
    cloud: Cloud = None,
    region: Region = None,
    folder: Folder = None,
    as_of: AsOf = None,
    every: Every = None,
    as_json: AsJson = False,
) -> None:
    """Read prices and quotas and keep what the gate believes. Exit 1 when a region gave no answer; its last stays."""
    from hexcloud import wiring
    from hexcloud.adapters.markets.sources import PriceQuestion
    from hexcloud.domain.duration import parse_duration

    pause_s = parse_duration(every) if every is not None else None
    asked = PriceQuestion(clouds=tuple(cloud or ()), regions=tuple(region or ()), folder=folder, as_of=as_of)
    while True:
        reports = list(_told(wiring.refresh_prices(asked), console(as_json)))
        if as_json:
            print_json([report.model_dump(mode="json") for report in reports])
        if pause_s is None:
            break
        time.sleep(pause_s)
    if any(report.problem for report in reports):
        raise typer.Exit(1)


def _told(reports: "Iterator[PartReport]", shown: "Console") -> "Iterator[PartReport]":
    """Say each region's report as it comes, and the sum at the end."""
    rows = changes = problems = 0
    for report in reports:
        rows, changes, problems = rows + report.rows, changes + report.changes, problems + bool(report.problem)
        shown.print(line(report, time.time()), soft_wrap=True)
        yield report
    failed = f", {problems} regions gave no answer" if problems else ""
    shown.print(f"{rows} rows read, {changes} changes kept{failed}")


def line(report: "PartReport", now_s: float) -> str:
    """Return one region's report as one line."""
    where = f"{report.source} {report.cloud}/{report.region}"
    if report.problem:
        kept = (
            "nothing was known before" if report.good_s is None else f"kept prices of {age(now_s - report.good_s)} ago"
        )
        problem = report.problem if report.region in report.problem else f"{where}: {report.problem}"
        return f"{problem}; {kept}"
    doubts = [f"{count} {outcome.value}" for outcome, count in report.outcomes.items() if count]
    return f"{where}: {report.rows} rows ({', '.join(doubts) or 'none'}), {report.changes} changes"
