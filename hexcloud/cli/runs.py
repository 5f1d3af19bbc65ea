"""Commands about runs that are there: `attach`, `status`, `events`, `replan`, `down`."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from hexcloud.cli.find import find_run
from hexcloud.cli.options import AllRuns, AsJson, RunName, UnknownToo, Yes
from hexcloud.cli.output import console, print_json, say
from hexcloud.cli.picture import Picture, take

if TYPE_CHECKING:
    from hexcloud.domain.run import RunRecord
    from hexcloud.ports import Store

LOOK_EVERY_S = 1.0


def attach(run: RunName = None, as_json: AsJson = False) -> None:
    """Watch a run that another process controls, to its end. Ctrl-C leaves the run alone."""
    from hexcloud import wiring
    from hexcloud.cli.report import bring_results, show_report

    store = wiring.open_store()
    found = find_run(store, run)
    _watch(found, store, as_json)
    bring_results(found)
    show_report(wiring.report_of(found.id), as_json)


def status(
    run: RunName = None,
    every: Annotated[bool, typer.Option("--all", help="List all runs instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show where a run is: nodes, throughput, reward, money."""
    from hexcloud import wiring
    from hexcloud.cli.live import live_view

    store = wiring.open_store()
    if every:
        _list([take(store, one.id) for one in store.runs()], as_json)
        return
    picture = take(store, find_run(store, run).id)
    if as_json:
        print_json(_fields(picture))
        return
    out = console()
    out.print(live_view(picture), soft_wrap=True)
    if _is_orphan(picture.run):
        out.print(f"nobody controls this run: `hexcloud up --resume {picture.run.id}` adopts it", soft_wrap=True)


def events(
    run: RunName = None,
    kind: Annotated[str | None, typer.Option("--kind", help="Only events of this kind.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show a run's history."""
    from hexcloud import wiring

    store = wiring.open_store()
    found = find_run(store, run)
    every = store.events(found.id)
    history = [(number, event) for number, event in every if kind in {None, event.kind}]
    if as_json:
        print_json([{"number": number, **event.model_dump(mode="json")} for number, event in history])
        return
    for _, event in history:
        hours = (event.at_s - every[0][1].at_s) / 3600
        typer.echo(f"{hours:8.3f} h  {event.kind:16} {event.text}")


def replan(run: RunName = None) -> None:
    """Ask a run's controller to look for a better plan now."""
    from hexcloud import wiring
    from hexcloud.cli.drive import REPLAN_REQUESTED, is_controlled
    from hexcloud.domain.errors import ConfigError
    from hexcloud.domain.event import Event

    store = wiring.open_store()
    found = find_run(store, run)
    if not is_controlled(found):
        raise ConfigError(f"run {found.id} is {found.state.value} and nobody controls it; there is nobody to re-plan")
    clock = wiring.clock(found)
    asked = Event(at_s=clock.now_s(), wall_s=clock.wall_s(), kind=REPLAN_REQUESTED, text="asked for by a user")
    store.add_event(found.id, asked)
    say(f"run {found.id} re-plans at its next turn; `hexcloud events --kind replan` shows what comes of it")


def down(
    run: RunName = None,
    all_runs: AllRuns = False,
    unknown_too: UnknownToo = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """End a run: checkpoint, end every machine, wait until each end is confirmed, and report what was billed.

    With --all-runs: the machines of every run, also of those whose controller or computer is gone.
    """
    if all_runs:
        from hexcloud.cli.sweep import down_all

        down_all(run, yes, unknown_too, as_json)
    else:
        _down(run, as_json)


def _down(run: str | None, as_json: bool) -> None:
    from hexcloud import wiring
    from hexcloud.cli.drive import drive, hold, is_controlled
    from hexcloud.cli.report import bring_results, show_report
    from hexcloud.cli.watch import watch_on
    from hexcloud.controller.reconcile import ENDED
    from hexcloud.domain.run import RunState

    store = wiring.open_store()
    found = find_run(store, run)
    if found.state not in ENDED:
        store.set_run_state(found.id, RunState.STOPPING, "down")
        if is_controlled(found):
            _watch(found, store, as_json)
        else:
            ending = found.model_copy(update={"state": RunState.STOPPING, "reason": "down"})
            with hold(found):
                drive(ending, store, watch_on(console(as_json)))
    bring_results(found)
    show_report(wiring.report_of(found.id), as_json)


def _watch(run: "RunRecord", store: "Store", as_json: bool) -> None:
    """Look at a run until it ends. Raises when its controller dies meanwhile: then nobody would ever end it."""
    from hexcloud.cli.watch import watch_on
    from hexcloud.controller.reconcile import ENDED
    from hexcloud.domain.errors import StoreError

    with watch_on(console(as_json)) as watch:
        while (picture := take(store, run.id)).run.state not in ENDED:
            watch.look(picture)
            if _is_orphan(run) and take(store, run.id).run.state not in ENDED:
                raise StoreError(f"nobody controls run {run.id}; `hexcloud up --resume {run.id}` adopts it")
            time.sleep(LOOK_EVERY_S)
        watch.look(picture)


def _is_orphan(run: "RunRecord") -> bool:
    from hexcloud.cli.drive import is_controlled
    from hexcloud.controller.reconcile import ENDED

    return run.state not in ENDED and not is_controlled(run)


def _fields(picture: Picture) -> dict[str, object]:
    mean, oldest = picture.staleness
    view = picture.view
    return {
        "run": picture.run.id,
        "state": picture.run.state.value,
        "reason": picture.run.reason,
        "step": view.version if view else 0,
        "steps": picture.run.spec.steps,
        "tokens_per_s": picture.tokens_per_s,
        "target_tokens_per_s": picture.target_tokens_per_s,
        "reward": view.reward if view else None,
        "mean_staleness": mean,
        "max_staleness": oldest,
        "spent_usd": picture.spent_usd,
        "budget_usd": picture.run.policy.budget_usd,
        "usd_per_hour": picture.usd_per_hour,
        "is_controlled": not _is_orphan(picture.run),
        "alarms": list(picture.alarms),
        "nodes": [node.model_dump(mode="json") for node in picture.nodes],
    }


def _list(pictures: list[Picture], as_json: bool) -> None:
    if as_json:
        print_json([_fields(picture) for picture in pictures])
        return
    if not pictures:
        say("there is no run yet; `hexcloud up` starts one")
        return
    from rich.table import Table

    table = Table("run", "state", "step", "nodes", "spent USD", "reason", box=None)
    for picture in pictures:
        step = f"{picture.view.version if picture.view else 0}/{picture.run.spec.steps}"
        run = picture.run
        table.add_row(run.id, run.state.value, step, str(len(picture.nodes)), f"{picture.spent_usd:.2f}", run.reason)
    console().print(table)
