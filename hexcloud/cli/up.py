"""`hexcloud up`: plan, ask, rent, train, re-plan, report."""

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hexcloud.cli.find import find_run
from hexcloud.cli.options import (
    AsJson,
    Budget,
    Clouds,
    Detach,
    Engine,
    MaxUsdPerHour,
    Model,
    Name,
    Output,
    PassEnv,
    PolicyName,
    Provider,
    Resume,
    StartFile,
    Steps,
    StoreUrl,
    Target,
    TaskName,
    TraceName,
    Weights,
    Yes,
)
from hexcloud.cli.output import console, print_json, say
from hexcloud.cli.planned import Planned, make, plan_view
from hexcloud.cli.preflight import require_accounts
from hexcloud.cli.schedules import refresh_first
from hexcloud.cli.spec import spec_of

if TYPE_CHECKING:
    from hexcloud.domain.market import Market
    from hexcloud.domain.run import RunRecord, RunSpec
    from hexcloud.ports import Store

DETACH_S = 20.0
"""Wall seconds until a detached controller holds its run; it takes one or two."""
_UNMET_TOLD = 5
"""A trace may be of another cloud altogether, with hundreds of events."""


@dataclass(frozen=True)
class Asking:
    """How a user is asked before money is spent."""

    yes: bool
    """The answer was given beforehand."""
    as_json: bool
    """A machine reads stdout: words go to stderr."""


@dataclass(frozen=True)
class Changes:
    """What may change when a run goes on; None: nothing."""

    steps: int | None
    budget_usd: float | None


def up(
    run_file: StartFile = None,
    target_throughput: Target = None,
    model: Model = None,
    policy: PolicyName = None,
    cloud: Clouds = None,
    steps: Steps = None,
    budget: Budget = None,
    max_usd_per_hour: MaxUsdPerHour = None,
    output: Output = None,
    trace: TraceName = None,
    provider: Provider = None,
    store_url: StoreUrl = None,
    pass_env: PassEnv = None,
    engine: Engine = None,
    task: TaskName = None,
    weights: Weights = None,
    name: Name = None,
    resume: Resume = None,
    yes: Yes = False,
    detach: Detach = False,
    as_json: AsJson = False,
) -> None:
    """Start a run, or adopt the one of this name that nobody controls any more, and see it through.

    Ctrl-C checkpoints and ends every machine; a second Ctrl-C ends them at once."""
    from hexcloud import wiring

    store = wiring.open_store()
    options: dict[str, object] = {"name": name, "model": model, "policy": policy, "cloud": cloud, "steps": steps}
    options |= {"target": target_throughput, "max_usd_per_hour": max_usd_per_hour, "budget": budget, "task": task}
    options |= {"provider": provider, "store": store_url, "pass_env": pass_env, "engine": engine, "weights": weights}
    spec = spec_of(run_file, options | {"output": output and str(output), "trace": trace})
    asking = Asking(yes, as_json)
    found = _resumed(resume, Changes(steps, budget), store, asking) if resume else _adoptable(spec, store)
    run = found or _begin(spec, store, asking)
    if detach:
        _detach(run, as_json)
    else:
        _see_through(run, store, as_json)


def control(run_id: Annotated[str, typer.Argument(metavar="RUN")]) -> None:
    """Control a run that `up --detach` began."""
    from hexcloud import wiring

    store = wiring.open_store()
    _see_through(find_run(store, run_id), store, as_json=False)


def _begin(spec: "RunSpec", store: "Store", asking: Asking) -> "RunRecord":
    """Show a new run's plan, ask, and write the run down. Rents nothing yet."""
    from hexcloud import wiring
    from hexcloud.controller.budget import require_budget
    from hexcloud.controller.report import baselines_event

    wiring.require_provider(spec)  # costs nothing, and reading prices takes a while
    refresh_first(spec)
    given = wiring.run_input(spec)
    _tell_unmet(given.market)
    planned = make(given, spec.target)
    run = wiring.new_run(spec, given, planned.result.plan.allocation.samples_per_s)
    require_budget(planned.result.plan, given.market, run, wiring.timing_of(run))
    wiring.prove_weights_stores(spec)
    if spec.is_real:
        wiring.require_store(spec)
        require_accounts(planned.result.plan, given.market)
    _ask(planned, run, asking)
    run = wiring.begun_now(run, planned.result.plan.allocation)
    wiring.run_dir(run).create()
    store.save_run(run)
    first_usd_per_hour = planned.result.plan.allocation.usd_per_hour
    at_s, wall_s = run.clock_origin_run_s, run.created_wall_s
    store.add_event(run.id, baselines_event(planned.baselines, first_usd_per_hour, at_s, wall_s))
    return run


def _tell_unmet(market: "Market") -> None:
    """Say which events of the trace do nothing: a misspelt offer would let a run end as if the market stood still."""
    from hexcloud.adapters.markets.trace import UNMET

    unmet = [finding for finding in market.findings if finding.rule == UNMET]
    for finding in unmet[:_UNMET_TOLD]:
        say(f"{finding.source}: {finding.row!r} {finding.reason}")
    if len(unmet) > _UNMET_TOLD:
        say(f"and {len(unmet) - _UNMET_TOLD} more like these")


def _ask(planned: Planned, run: "RunRecord", asking: Asking) -> None:
    """Show what is about to be rented, and ask. Without a terminal nobody can answer, so only `--yes` goes on."""
    from hexcloud.cli.picture import emulation_note
    from hexcloud.domain.errors import ConfigError

    out = console(asking.as_json)
    out.print(plan_view(planned))
    out.print(f"\n{emulation_note(run)}")
    budget = run.policy.budget_usd
    cap = f"at most {budget:.2f} USD" if budget else "no budget is set"
    out.print(f"run {run.id}: {run.spec.steps} steps, {planned.running_usd_per_hour:.2f} USD/h, {cap}")
    if asking.yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"run {run.id} was not started: nobody can be asked before spending; add --yes")
    typer.confirm("Rent these machines?", abort=True, err=True)


def _resumed(name: str, changes: Changes, store: "Store", asking: Asking) -> "RunRecord":
    """Return the run to go on with: one that ended begins anew from its checkpoint, any other is adopted."""
    from hexcloud import wiring
    from hexcloud.controller.budget import require_budget
    from hexcloud.controller.reconcile import ENDED

    old = find_run(store, name)
    run = wiring.with_budget(old, changes.budget_usd)
    if run.state not in ENDED:
        _refuse_if_controlled(run)
        wiring.passed_env(run)
        if run != old:
            store.save_run(run)
        return run
    _refuse_if_trained(old, changes.steps or old.spec.steps, store)
    wiring.require_provider(run.spec)
    refresh_first(run.spec)
    run = wiring.resumed_run(run, changes.steps)
    given = wiring.resumed_input(run)
    _tell_unmet(given.market)
    planned = make(given, run.spec.target)
    require_budget(planned.result.plan, given.market, run, wiring.timing_of(run), store.spent_usd(run.id))
    wiring.require_store(run.spec)
    if run.spec.is_real:
        require_accounts(planned.result.plan, given.market)
    _ask(planned, run, asking)
    run = wiring.begun_now(run, planned.result.plan.allocation)
    store.save_run(run)
    say(f"run {run.id} goes on from its last checkpoint")
    return run


def _adoptable(spec: "RunSpec", store: "Store") -> "RunRecord | None":
    """Return the run of this name that has not ended, if its controller died. Raises when it is alive."""
    from hexcloud import wiring
    from hexcloud.controller.reconcile import ENDED

    run = next((run for run in store.runs() if run.spec.name == spec.name and run.state not in ENDED), None)
    if run is None:
        return None
    _refuse_if_controlled(run)
    wiring.passed_env(run)
    say(f"adopting run {run.id}: its controller is gone, its machines and its settings are kept")
    return run


def _refuse_if_controlled(run: "RunRecord") -> None:
    from hexcloud.cli.drive import is_controlled
    from hexcloud.domain.errors import ConfigError

    if is_controlled(run):
        raise ConfigError(
            f"run {run.id} of the name {run.spec.name!r} is going on: `hexcloud attach {run.id}` shows it, "
            f"`hexcloud down {run.id}` ends it, --name gives another run another name"
        )


def _refuse_if_trained(old: "RunRecord", steps: int, store: "Store") -> None:
    from hexcloud.domain.errors import ConfigError
    from hexcloud.domain.run import RunState

    view = store.view(old.id)
    if old.state is RunState.DONE and view is not None and view.version >= steps:
        trained = f"all {steps} steps" if view.version == steps else f"{view.version} steps"
        raise ConfigError(f"run {old.id}: {trained} are trained; --steps N, over {view.version}, for more")


def _detach(run: "RunRecord", as_json: bool) -> None:
    """Start a process of its own that controls the run, and wait until it holds it."""
    from hexcloud.cli.drive import is_controlled
    from hexcloud.domain.errors import StoreError

    log = Path(run.run_dir) / "controller.log"
    with log.open("a") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "hexcloud.cli", "control", run.id],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    give_up = time.monotonic() + DETACH_S
    while not is_controlled(run):
        if process.poll() is not None or time.monotonic() > give_up:
            raise StoreError(f"the controller of run {run.id} did not start; see {log}")
        time.sleep(0.1)
    if as_json:
        print_json({"run": run.id, "pid": process.pid, "log": str(log)})
    else:
        typer.echo(
            f"run {run.id} goes on in the background: `hexcloud attach {run.id}` shows it, `hexcloud down` ends it"
        )


def _see_through(run: "RunRecord", store: "Store", as_json: bool) -> None:
    """Control the run to its end and print its report; exit 1 when it failed."""
    from hexcloud import wiring
    from hexcloud.cli.drive import drive, hold
    from hexcloud.cli.report import bring_results, show_report
    from hexcloud.cli.watch import watch_on
    from hexcloud.domain.run import RunState

    with hold(run):
        state = drive(run, store, watch_on(console(as_json)))
    bring_results(run)
    show_report(wiring.report_of(run.id), as_json)
    if state is RunState.FAILED:
        raise typer.Exit(1)
