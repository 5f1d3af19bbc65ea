"""`hexcloud catalog history`: what an offer has cost, and since when."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hexcloud.cli.ages import age
from hexcloud.cli.options import AsJson
from hexcloud.cli.output import console, print_json, say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.table import Column

    from hexcloud.cli.tracks import Track, Tracks

LAST_CHANGES = 12
"""Of one offer, in the terminal; JSON has all."""
MOST_LISTED = 8
"""Offers whose changes are listed in the terminal."""

Recording = Annotated[
    Path | None,
    typer.Option("--from", help="A recording: a file or folder of past prices.", show_default="what refreshes brought"),
]
At = Annotated[str | None, typer.Option("--at", help="Only the price at this moment (2023-06-01T12:00, UTC).")]
Since = Annotated[str | None, typer.Option("--since", help="Only from this moment on.", show_default="all")]
Until = Annotated[str | None, typer.Option("--until", help="Only up to this moment.", show_default="all")]
Plot = Annotated[Path | None, typer.Option("--plot", help="Draw the price steps of each zone into this PNG file.")]


def history(
    offer: Annotated[str, typer.Argument(help="An offer's id (* is any text), or a machine type.")],
    recording: Recording = None,
    at: At = None,
    since: Since = None,
    until: Until = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Show every believed price of an offer over time, with its age."""
    from hexcloud.cli.tracks import recorded_tracks, stored_tracks
    from hexcloud.domain.errors import ConfigError

    if at is not None and (since or until or plot):
        raise ConfigError("--at shows one moment; leave out --since, --until and --plot")
    found = stored_tracks(offer) if recording is None else recorded_tracks(recording, offer)
    if at is not None:
        _show_moment(found, _moment("--at", at) or 0.0, as_json)
        return
    until_s = _moment("--until", until) or (time.time() if recording is None else found.last_s)
    since_s = _moment("--since", since) or found.first_s
    if since or until:
        _check_order(since_s, until_s)
    seen = [track.between(since_s, until_s) for track in found.tracks]
    shown = [track for track in seen if track.changes]
    if plot is not None:
        from hexcloud.cli.plot import draw_prices

        draw_prices(shown, plot, since_s, until_s)
        say(f"drawn: {plot}")
    if as_json:
        print_json(_document(found, shown))
    else:
        _show(found, shown, since_s, until_s)


def _moment(option: str, text: str | None) -> float | None:
    """Return seconds since the epoch."""
    from hexcloud.domain.errors import ConfigError

    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{option} {text!r} is no date; write it like 2023-06-01 or 2023-06-01T12:00") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _check_order(since_s: float, until_s: float) -> None:
    from hexcloud.domain.errors import ConfigError

    if since_s >= until_s:
        raise ConfigError(f"nothing lies between {_day(since_s)} and {_day(until_s)}; --since must be before --until")


def _day(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M}"


def _iso(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat()


def _price(usd_per_hour: float | None) -> str:
    return "-" if usd_per_hour is None else f"{usd_per_hour:.4f}"


def _offers(tracks: "Iterable[Track]") -> "Column":
    """Return the column of ids, wide enough for the longest: a cut id cannot be copied."""
    from rich.table import Column

    return Column("offer", no_wrap=True, min_width=max((len(track.offer_id) for track in tracks), default=0))


def _show_moment(found: "Tracks", at_s: float, as_json: bool) -> None:
    """Show what was in force at one moment, cheapest first."""
    from rich.table import Table

    known = [(track, change) for track in found.tracks if (change := track.change_at(at_s)) is not None]
    known.sort(key=lambda pair: (pair[1].usd_per_hour is None, pair[1].usd_per_hour or 0.0, pair[0].offer_id))
    if as_json:
        print_json(
            [
                {
                    "offer_id": track.offer_id,
                    "source": track.source,
                    "usd_per_hour": change.usd_per_hour,
                    "since": _iso(change.at_s),
                }
                for track, change in known
            ]
        )
        return
    table = Table(_offers(track for track, _ in known), "USD/h", "since", "age then", "source", box=None)
    for track, change in known:
        row = (_price(change.usd_per_hour), _day(change.at_s), age(at_s - change.at_s), track.source)
        table.add_row(track.offer_id, *row)
    console().print(f"prices of {_day(at_s)} UTC")
    console().print(table)
    if len(known) < len(found.tracks):
        say(f"{len(found.tracks) - len(known)} more offers have no price before that")


def _document(found: "Tracks", shown: "list[Track]") -> dict[str, object]:
    return {
        "tracks": [
            {
                "offer_id": track.offer_id,
                "source": track.source,
                "confirmed": _iso(track.confirmed_s),
                "changes": [{"at": _iso(change.at_s), "usd_per_hour": change.usd_per_hour} for change in track.changes],
            }
            for track in shown
        ],
        "findings": [finding.model_dump(mode="json") for finding in found.findings],
    }


def _show(found: "Tracks", shown: "list[Track]", since_s: float, until_s: float) -> None:
    """Show a line per offer, then the last changes of each, newest first."""
    from rich.table import Table

    period = f"{_day(since_s)} to {_day(until_s)}"
    table = Table(_offers(shown), period, "least", "most", "last", "changes", box=None)
    for track in shown:
        prices = track.prices()
        ends = (_price(min(prices, default=None)), _price(max(prices, default=None)))
        line, last = track.sparkline(since_s, until_s), _price(track.changes[-1].usd_per_hour)
        table.add_row(track.offer_id, line, *ends, last, f"{len(track.changes)}")
    console().print(table)
    for track in shown if len(shown) <= MOST_LISTED else ():
        console().print(f"\n{track.offer_id} ({track.source})")
        _show_changes(track, until_s)
    if len(shown) > MOST_LISTED:
        say(f"{len(shown)} offers; name at most {MOST_LISTED} to see their changes, or --json for all")
    for finding in found.findings:
        say(f"{finding.outcome.value}, {finding.rule}: {finding.reason}")


def _show_changes(track: "Track", until_s: float) -> None:
    from rich.table import Table

    table = Table("from", "USD/h", "change", f"age on {_day(until_s)}", box=None)
    before = [None, *(change.usd_per_hour for change in track.changes)]
    for change, old in list(zip(track.changes, before, strict=False))[: -LAST_CHANGES - 1 : -1]:
        new = change.usd_per_hour
        move = f"{new / old - 1:+.1%}" if new and old else ""
        table.add_row(_day(change.at_s), _price(new), move, age(until_s - change.at_s))
    console().print(table)
    if len(track.changes) > LAST_CHANGES:
        say(f"{len(track.changes) - LAST_CHANGES} earlier changes: --until, or --json for all")
