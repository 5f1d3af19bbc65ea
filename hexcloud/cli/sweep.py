"""`hexcloud down --all-runs`: end every machine that carries our tags, whoever's run it is of."""

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from hexcloud.cli.output import console, print_json, say
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.fleet import THIS_COMPUTER
from hexcloud.domain.offer import place_of

if TYPE_CHECKING:
    from hexcloud.controller.sweep import Found, Survey
    from hexcloud.domain.fleet import Rented
    from hexcloud.domain.run import RunRecord
    from hexcloud.ports import Store

PATIENCE_S = 900.0
"""Wall seconds in which every machine is to end."""


def down_all(run: str | None, yes: bool, as_json: bool) -> None:
    """Show every machine, ask, end them, and tell what was ended and billed. Exit 1 when something may still bill."""
    from hexcloud import wiring
    from hexcloud.cli.drive import is_controlled
    from hexcloud.controller.sweep import ENDED, end_all, survey

    if run is not None:
        raise ConfigError(f"down: name a run ({run}) or say --all-runs, not both")
    store = wiring.open_store()
    seen = survey(wiring.rolls(store), wiring.runs_by_tag(store), is_controlled)
    going_on = [run for run in store.runs() if run.state not in ENDED]  # these close their books themselves
    _show(seen, going_on, as_json)
    left: tuple[Rented, ...] = ()
    if seen.found or going_on:
        _ask(yes)
        _end_runs(going_on)
        answered = [roll for roll in wiring.rolls(store) if roll.name not in seen.problems]
        tags = frozenset(one.tag for one in seen.found)
        left, problems = end_all(answered, tags, wiring.wall_clock(), PATIENCE_S)
        seen = replace(seen, problems={**seen.problems, **problems})
        _bill(seen, store)
    _report(seen, left, store, as_json)
    if left or set(seen.problems) & _rented_on(store):
        raise typer.Exit(1)


def _rented_on(store: "Store") -> set[str]:
    """Return the places on which runs of this computer ever had machines: what happens elsewhere is nobody's fault."""
    real = {run.id for run in store.runs() if run.spec.is_real}
    return {THIS_COMPUTER} | {place_of(node.offer_id).cloud for run_id in real for node in store.nodes(run_id)}


def _show(seen: "Survey", going_on: "list[RunRecord]", as_json: bool) -> None:
    from rich.table import Table

    out = console(as_json)
    table = Table("run", "here", "machine", "type", "where", box=None)
    for one in seen.found:
        for machine in one.machines:
            table.add_row(one.tag, one.fate, machine.id, machine.instance_type, machine.place)
    if seen.found:
        out.print(table)
    for run in going_on:
        out.print(f"run {run.id} is {run.state.value}: it checkpoints before its machines end")
    for place, why in seen.problems.items():
        say(f"{place} could not be asked: {why}")


def _ask(yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("nothing was ended: nobody can be asked; add --yes")
    typer.confirm(
        "End all of these machines, also those of runs that this computer does not know?", abort=True, err=True
    )


def _end_runs(runs: "list[RunRecord]") -> None:
    """End every run that goes on, all at once, each by a process of its own; a failure shows in what is left."""
    argv = [sys.executable, "-m", "hexcloud.cli", "down"]
    ending = [
        subprocess.Popen([*argv, run.id, "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) for run in runs
    ]
    for run, process in zip(runs, ending, strict=True):
        if process.wait() != 0:
            say(f"run {run.id} did not end as it should; `hexcloud events {run.id}` tells why")


def _bill(seen: "Survey", store: "Store") -> None:
    """Put on the books what machines of runs that had ended went on costing."""
    from hexcloud import wiring
    from hexcloud.controller.sweep import late_bills

    for one in seen.found:
        if one.is_forgotten and one.run is not None and one.run.spec.is_real:
            at_s, run_id = wiring.clock(one.run).now_s(), one.run.id
            store.add_ledger(run_id, late_bills(one, store.nodes(run_id), store.ledger(run_id), at_s))


def _report(seen: "Survey", left: "tuple[Rented, ...]", store: "Store", as_json: bool) -> None:
    still = {machine.id for machine in left}
    rows = [_row(one, still, store) for one in seen.found]
    if as_json:
        machines = [machine.model_dump(mode="json") for machine in left]
        print_json({"runs": rows, "left": machines, "problems": seen.problems})
    else:
        _tell(rows, left, seen)


def _row(one: "Found", still: set[str], store: "Store") -> dict[str, object]:
    return {
        "run": one.run.id if one.run else one.tag,
        "ended": [machine.id for machine in one.machines if machine.id not in still],
        "billed_usd": store.spent_usd(one.run.id) if one.run else None,
    }


def _tell(rows: list[dict[str, object]], left: "tuple[Rented, ...]", seen: "Survey") -> None:
    for row in rows:
        ended, billed = row["ended"], row["billed_usd"]
        count = len(ended) if isinstance(ended, list) else 0
        money = f"{billed:.2f} USD billed" if isinstance(billed, float) else "its bill is not known here"
        typer.echo(f"run {row['run']}: {count} machines ended, {money}")
    for machine in left:
        say(f"{machine.id} ({machine.instance_type}) in {machine.place} STILL RUNS: end it in the cloud's console")
    for place, why in seen.problems.items():
        say(f"machines on {place} may still run: {why}")
    if not rows:
        typer.echo("no machine of any run was found")
