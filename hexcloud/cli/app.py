"""The command `hexcloud`: which commands there are, and what an error looks like."""

import sys
from typing import Annotated

import typer

from hexcloud.cli import catalog, plan, preflight, profile, report, runs, up
from hexcloud.cli.refusals import refuse
from hexcloud.domain.errors import HexcloudError

app = typer.Typer(
    name="hexcloud",
    help="Buy the cheapest mix of cloud GPUs that keeps an asynchronous RL run at its target throughput.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("plan", short_help="Show the cheapest fleet; rent nothing.")(plan.plan)
app.command("up", short_help="Plan, ask, rent, train, re-plan, report.")(up.up)
app.command("attach", short_help="Watch a run to its end.")(runs.attach)
app.command("status", short_help="Show where a run is.")(runs.status)
app.command("events", short_help="Show a run's history.")(runs.events)
app.command("replan", short_help="Look for a better plan now.")(runs.replan)
app.command("down", short_help="End a run and all its machines.")(runs.down)
app.command("report", short_help="Show what a run did.")(report.report)
app.command("preflight", short_help="Check this machine.")(preflight.preflight)
app.command("profile", short_help="Measure an engine or a trainer.")(profile.profile)
app.add_typer(catalog.app, name="catalog")
app.command("control", hidden=True)(up.control)


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 refused or failed, 2 wrong input."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        app(args=arguments, prog_name="hexcloud")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except HexcloudError as error:
        return refuse(error, as_json="--json" in arguments)
    return 0


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"hexcloud {version('hexcloud')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Buy the cheapest mix of cloud GPUs that keeps an asynchronous RL run at its target throughput."""
