"""`hexcloud down --all-runs`: end every machine that carries our tags, whoever's run it is of."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from hexcloud.cli.output import console, print_json, say
from hexcloud.domain.errors import ConfigError

if TYPE_CHECKING:
    from hexcloud.controller.sweep import Found, Survey
    from hexcloud.domain.fleet import Rented
    from hexcloud.domain.run import RunRecord
    from hexcloud.ports import Store

PATIENCE_S = 900.0
"""Wall seconds in which every machine is to end; a run that ends itself gets as long before."""


def down_all(run: str | None, yes: bool, unknown_too: bool, as_json: bool) -> None:
    """Show every machine, ask, end them, and tell what was ended and billed. Exit 1 when something may still bill.

    Machines of runs that are not known here end with `unknown_too` only, and none but those that were shown.
    """
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
        _ask(yes, unknown_too)
        _end_runs(going_on, PATIENCE_S)
        ours = {tag for tag, run in wiring.runs_by_tag(store).items() if run.id in {one.id for one in going_on}}
        tags, may_end = ours | {one.tag for one in seen.found}, _may_end(seen, store, unknown_too)
        left, problems = end_all(wiring.rolls(store), tags, may_end, wiring.wall_clock(), PATIENCE_S)
        seen = replace(seen, problems=problems)
        _bill(seen, store)
    _report(seen, left, store, as_json)
    if left or seen.problems:
        raise typer.Exit(1)


def _may_end(seen: "Survey", store: "Store", unknown_too: bool) -> "Callable[[Rented], bool]":
    """Return who may be ended, by the books as they are when it is asked: no machine of a run that somebody drives."""
    from hexcloud import wiring
    from hexcloud.cli.drive import is_controlled

    shown = {(machine.place, machine.id) for one in seen.found if one.run is None for machine in one.machines}

    def may_end(machine: "Rented") -> bool:
        run = wiring.runs_by_tag(store).get(machine.run)
        if run is None:
            return unknown_too and (machine.place, machine.id) in shown
        return not is_controlled(run)

    return may_end


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


def _ask(yes: bool, unknown_too: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("nothing was ended: nobody can be asked; add --yes")
    which = "also those of runs" if unknown_too else "but for those of runs"
    typer.confirm(f"End all of these machines, {which} that this computer does not know?", abort=True, err=True)


def _end_runs(runs: "list[RunRecord]", patience_s: float) -> None:
    """End every run that goes on, all at once, each by a process of its own; a failure shows in what is left.

    One that is not through in time is stopped: then its machines are ended without it.
    """
    argv = [sys.executable, "-m", "hexcloud.cli", "down"]
    ending = [
        subprocess.Popen([*argv, run.id, "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) for run in runs
    ]
    give_up_s = time.monotonic() + patience_s
    for run, process in zip(runs, ending, strict=True):
        try:
            has_failed = process.wait(max(0.0, give_up_s - time.monotonic())) != 0
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            has_failed = True
        if has_failed:
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
    hidden = {machine for one in seen.found for machine in one.machines if _is_hidden(machine, seen)}
    still = {machine.id for machine in hidden.union(left)}
    rows = [_row(one, still, store) for one in seen.found]
    if as_json:
        machines = [machine.model_dump(mode="json") for machine in left]
        print_json({"runs": rows, "left": machines, "problems": seen.problems})
    else:
        _tell(rows, left, seen)


def _is_hidden(machine: "Rented", seen: "Survey") -> bool:
    """Is nothing known of the place where it was?"""
    return any(f"{machine.place}/".startswith(f"{place}/") for place in seen.problems)


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
        what = f"{machine.id} ({machine.instance_type}) of run {machine.run} in {machine.place} STILL RUNS"
        say(f"{what}: {_mend(machine.run, seen)}")
    for place, why in seen.problems.items():
        say(f"machines on {place} may still run: {why}")
    if not rows and not seen.problems:
        typer.echo("no machine of any run was found")


def _mend(tag: str, seen: "Survey") -> str:
    if any(one.tag == tag and one.run is None for one in seen.found):
        return "no run of this computer; --unknown-too ends those that are shown, if nobody starts more"
    return "it was not ended in time, or its run goes on again: say it once more, or use the cloud's console"
