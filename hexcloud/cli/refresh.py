"""`hexcloud catalog refresh`: read live prices, judge them, keep what is believed."""

import time
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hexcloud.cli.ages import age
from hexcloud.cli.options import AsJson
from hexcloud.cli.output import console, print_json, say
from hexcloud.cli.refusals import refuse

DAY_S = 86400.0

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from hexcloud.adapters.markets.sources import PriceQuestion
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
Past = Annotated[
    str | None,
    typer.Option(
        "--history",
        help="Keep earlier spot prices too, as far back as this, such as 30d. AWS has 90 days, other sources none.",
        show_default="none",
    ),
]
Every = Annotated[str | None, typer.Option("--every", help="Again and again, such as 10m; ends with Ctrl-C.")]


def refresh(
    cloud: Cloud = None,
    region: Region = None,
    folder: Folder = None,
    as_of: AsOf = None,
    past: Past = None,
    every: Every = None,
    as_json: AsJson = False,
) -> None:
    """Read prices and quotas and keep what the gate believes. Exit 1 when a region gave no answer; its last stays."""
    from hexcloud.adapters.markets.sources import PriceQuestion

    if folder is not None and as_of is None:
        say("the prices are dated by the files' time of change; say --as-of DATE if they are older than that")
    pause_s, past_s = _span_s("--every", every), _span_s("--history", past)
    asked = PriceQuestion(
        clouds=tuple(cloud or ()),
        regions=tuple(region or ()),
        folder=folder,
        as_of=as_of,
        past_days=None if past_s is None else past_s / DAY_S,
    )
    if pause_s is not None:
        _until_stopped(asked, pause_s, as_json)
    elif any(report.problem for report in _once(asked, as_json)):
        raise typer.Exit(1)


def _once(asked: "PriceQuestion", as_json: bool) -> "list[PartReport]":
    from hexcloud import wiring

    reports = list(_told(wiring.refresh_prices(asked), console(as_json)))
    if as_json:
        print_json([report.model_dump(mode="json") for report in reports])
    return reports


def _until_stopped(asked: "PriceQuestion", pause_s: float, as_json: bool) -> None:
    """Ask again and again until Ctrl-C. A store that is busy or a catalog that is broken costs one turn, not the rest.

    Wrong input ends it at once.
    """
    from hexcloud.domain.errors import MarketError, StoreError

    with suppress(KeyboardInterrupt):
        while True:
            try:
                _once(asked, as_json)
                asked = replace(asked, past_days=None)  # once is enough: what comes later is read as it comes
            except (MarketError, StoreError) as error:
                refuse(error, as_json)
            time.sleep(pause_s)


def _span_s(option: str, text: str | None) -> float | None:
    from hexcloud.domain.duration import parse_duration
    from hexcloud.domain.errors import ConfigError

    try:
        return None if text is None else parse_duration(text)
    except ConfigError as error:
        raise ConfigError(f"{option}: {error}") from error


def _told(reports: "Iterator[PartReport]", shown: "Console") -> "Iterator[PartReport]":
    """Say each region's report as it comes, and the sum at the end."""
    told: list[PartReport] = []
    for report in reports:
        told.append(report)
        shown.print(line(report, time.time()), soft_wrap=True)
        yield report
    now = [report for report in told if not report.past]
    before = sum(report.changes for report in told if report.past)
    past = f", {before} past prices kept" if len(now) < len(told) else ""
    problems = sum(bool(report.problem) for report in told)
    failed = f", {problems} regions gave no answer" if problems else ""
    rows, changes = sum(report.rows for report in now), sum(report.changes for report in now)
    shown.print(f"{rows} rows read, {changes} changes kept{past}{failed}")


def line(report: "PartReport", now_s: float) -> str:
    """Return one region's report as one line."""
    where = f"{report.source} {report.cloud}/{report.region}"
    if report.problem:
        kept = (
            "nothing was known before" if report.good_s is None else f"kept prices of {age(now_s - report.good_s)} ago"
        )
        problem = report.problem if report.region in report.problem else f"{where}: {report.problem}"
        return f"{problem}; no past prices added" if report.past else f"{problem}; {kept}"
    doubts = [f"{count} {outcome.value}" for outcome, count in report.outcomes.items() if count]
    rows, changes = ("past prices", "older than known") if report.past else ("rows", "changes")
    note = f"; {report.note}" if report.note else ""
    return f"{where}: {report.rows} {rows} ({', '.join(doubts) or 'none'}), {report.changes} {changes}{note}"
