"""The only file that knows every adapter. Imports them inside functions, so that a command loads what it uses."""

import os
import secrets
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hexcloud.domain.errors import ConfigError
from hexcloud.domain.fleet import RunId
from hexcloud.domain.market import Market
from hexcloud.domain.messages import POINTER_FILE
from hexcloud.domain.metrics import METRICS_FILE
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.run import RunRecord, RunSpec, RunState
from hexcloud.domain.target import parse_target
from hexcloud.domain.workload import Workload

if TYPE_CHECKING:
    from hexcloud.adapters.markets.snapshot import SnapshotMarket
    from hexcloud.adapters.markets.trace import Trace
    from hexcloud.adapters.run_dir import RunDir
    from hexcloud.controller.outside import RunSecrets
    from hexcloud.controller.reconcile import Controller
    from hexcloud.domain.calibration import Factor
    from hexcloud.domain.offer import OfferId
    from hexcloud.domain.plan import PlanResult
    from hexcloud.domain.report import Report
    from hexcloud.ports import Clock, Coordinator, MarketSource, Provisioner, Store, Timer

DEFAULT_TARGET = "20k"
"""What a run aims at whose policy, too, has neither target nor hourly cap, trained tok/s."""
LOCAL_STEPS_PER_WALL_S = 1.0
"""Speed of the emulated run: a step (256 samples of the tiny task) a second leaves two cores half idle."""
LOCAL_WEIGHT_BYTES = 540_000.0
"""safetensors file of the embedded default's policy, 133,120 parameters in fp32."""
LOCAL_MAX_GANG_NODES = 1
"""The embedded trainer is one process on one node."""


@dataclass(frozen=True)
class PlanInput:
    """What a plan is made from."""

    market: Market
    workload: Workload
    policy: Policy


def home() -> Path:
    """Return the folder of the store and the runs: HEXCLOUD_HOME, or `~/.hexcloud`."""
    return Path(os.environ.get("HEXCLOUD_HOME") or Path.home() / ".hexcloud").absolute()


def factors_file() -> Path:
    """Return the file in which `hexcloud profile` keeps what it measured, and from which every plan reads it."""
    return home() / "calibration.yaml"


def _measured() -> "tuple[Factor, ...]":
    from hexcloud.adapters.files import load_factors

    return load_factors(factors_file())


def _snapshot(clouds: tuple[str, ...]) -> "SnapshotMarket":
    """Return the bundled market, with the speeds that were measured here."""
    from hexcloud.adapters.markets.snapshot import SnapshotMarket

    return SnapshotMarket(clouds, factors=_measured())


def open_store() -> "Store":
    """Open the store, making it when there is none. Raises StoreError."""
    from hexcloud.adapters.store.sqlite import SqliteStore

    return SqliteStore(home() / "hexcloud.db")


def workload_of(spec: RunSpec) -> Workload:
    """Return the RL job of a run. Raises ConfigError for an unknown model or task, or a batch of broken groups."""
    from hexcloud.adapters.files import find_model, suggest
    from hexcloud.runtime.tasks import TASKS

    if spec.task not in TASKS:
        raise ConfigError(f"task: {spec.task!r} is unknown{suggest(spec.task, TASKS)}")
    if spec.batch % spec.group:
        raise ConfigError(f"batch: {spec.batch} is not a multiple of group {spec.group}")
    return Workload(
        model=find_model(spec.model),
        prompt_tokens=spec.prompt_tokens,
        response_tokens=spec.response_tokens,
        max_response_tokens=max(8192, int(spec.response_tokens * 4)),
        samples_per_step=spec.batch,
        group_size=spec.group,
        eta=spec.eta,
    )


def policy_of(spec: RunSpec, workload: Workload) -> Policy:
    """Return the policy with the run's own fields over it. Raises ConfigError."""
    from hexcloud.adapters.files import load_policy

    policy = load_policy(spec.policy)
    cap = spec.max_usd_per_hour or policy.max_usd_per_hour
    asked = spec.target or (None if cap or policy.target_samples_per_s else DEFAULT_TARGET)
    changes: dict[str, object] = {
        "target_samples_per_s": parse_target(asked, workload) if asked else policy.target_samples_per_s,
        "max_usd_per_hour": cap,
        "budget_usd": spec.budget or policy.budget_usd,
        "clouds": spec.cloud or policy.clouds,
        "replan": spec.replan or policy.replan,
    }
    if changes["target_samples_per_s"] is None:
        changes["objective"] = Objective.MAX_THROUGHPUT
    return policy.model_copy(update=changes)


def snapshot_input(spec: RunSpec) -> PlanInput:
    """Return what `hexcloud plan` plans: the bundled snapshot as it stands. Raises ConfigError, MarketError."""
    workload = workload_of(spec)
    policy = policy_of(spec, workload)
    return PlanInput(market=_snapshot(policy.clouds).market(time.time()), workload=workload, policy=policy)


def fleet_input(spec: RunSpec, path: Path) -> PlanInput:
    """Return what `hexcloud plan --fleet FILE` plans: the user's own machines. No target: they do what they can."""
    from hexcloud.adapters.files import load_fleet

    workload = workload_of(spec)
    policy = policy_of(spec, workload).model_copy(update={"target_samples_per_s": None})
    market = load_fleet(path)
    market = market.model_copy(update={"calibration": market.calibration.with_factors(_measured())})
    return PlanInput(market=market, workload=workload, policy=policy)


def sky_picks(market: Market, result: "PlanResult") -> "frozenset[OfferId]":
    """Return the offers that SkyPilot's optimizer would take for a plan's machines, of those that the policy allows.

    Empty where SkyPilot is not installed. Raises MarketError when it fails.
    """
    from hexcloud.adapters.markets import sky_optimizer

    if not sky_optimizer.is_installed():
        return frozenset()
    refused = {rejection.offer_id for rejection in result.rejections if rejection.rule != "not_chosen"}
    offers = {offer.id: offer for offer in market.offers if offer.id not in refused}
    counts = Counter(slot.offer_id for slot in result.plan.placement.slots)
    machines = ((offers[name], count) for name, count in sorted(counts.items()))
    asks = (sky_optimizer.Ask(one.gpu, one.gpu_count, count, one.tenure) for one, count in machines)
    return sky_optimizer.picks(tuple(asks), tuple(offers.values()))


def run_input(spec: RunSpec) -> PlanInput:
    """Return what `hexcloud up` plans first: the same, within what the run's provider can start.

    Raises ConfigError also for what a run needs only later: once stored, a run that cannot go on blocks its name.
    """
    from hexcloud.adapters.markets.trace import load_trace
    from hexcloud.adapters.timer import read_schedule

    given = snapshot_input(spec)
    if spec.provider != "local":
        raise ConfigError(f"provider: {spec.provider!r} is unknown; this version rents from: local")
    if spec.trace is not None:
        load_trace(spec.trace)
    read_schedule(given.policy.replan, time.time())
    if spec.output is not None:
        _require_writable(Path(spec.output))
    return PlanInput(
        market=given.market,
        workload=given.workload,
        policy=given.policy.model_copy(update={"max_gang_nodes": LOCAL_MAX_GANG_NODES}),
    )


def _require_writable(folder: Path) -> None:
    """Make a folder, and a file in it for a moment. Raises ConfigError: better now than after the last step."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"hexcloud")
    except OSError as error:
        raise ConfigError(f"output: {str(folder)!r} cannot be written: {error.strerror}") from error


def _absolute(spec: RunSpec) -> RunSpec:
    """Return a run's spec as it reads from any folder: another process may go on with the run from elsewhere."""
    from hexcloud.adapters.files import POLICY_SUFFIXES, is_path
    from hexcloud.adapters.markets.trace import TRACE_SUFFIX

    files = {"output": spec.output}
    files |= {"policy": spec.policy} if is_path(spec.policy, *POLICY_SUFFIXES) else {}
    files |= {"trace": spec.trace} if spec.trace and is_path(spec.trace, TRACE_SUFFIX) else {}
    return spec.model_copy(update={field: str(Path(file).absolute()) for field, file in files.items() if file})


def new_run(spec: RunSpec, given: PlanInput, samples_per_s: float) -> RunRecord:
    """Return the record of a run that starts now. `samples_per_s` is the planned throughput: it sets the clock's scale.

    Nothing is written and nothing is rented.
    """
    now = time.time()
    run_id = RunId(f"{spec.name}-{time.strftime('%m%d-%H%M%S', time.gmtime(now))}-{secrets.token_hex(2)}")
    run_dir = home() / "runs" / run_id
    return RunRecord(
        id=run_id,
        spec=_absolute(spec),
        workload=given.workload,
        policy=given.policy,
        state=RunState.RUNNING,
        created_wall_s=now,
        clock_origin_run_s=now,
        clock_origin_wall_s=now,
        clock_scale=given.workload.samples_per_step * LOCAL_STEPS_PER_WALL_S / samples_per_s,
        run_dir=str(run_dir),
        output=str(Path(spec.output).absolute()) if spec.output else str(run_dir / "output"),
    )


def with_budget(run: RunRecord, budget_usd: float | None) -> RunRecord:
    """Return a run with another cap on its whole spend; None leaves it as it is."""
    if budget_usd is None:
        return run
    spec = run.spec.model_copy(update={"budget": budget_usd})
    policy = run.policy.model_copy(update={"budget_usd": budget_usd})
    return run.model_copy(update={"spec": spec, "policy": policy})


def resumed_run(old: RunRecord, steps: int | None) -> RunRecord:
    """Return the record with which a finished or broken run goes on from its last checkpoint; its clock stood still."""
    now = time.time()
    ran_until_s = max((event.at_s for _, event in open_store().events(old.id)), default=old.clock_origin_run_s)
    return old.model_copy(
        update={
            "spec": old.spec.model_copy(update={"steps": steps or old.spec.steps}),
            "state": RunState.RUNNING,
            "reason": "",
            "clock_origin_run_s": ran_until_s,
            "clock_origin_wall_s": now,
        }
    )


def run_dir(run: RunRecord) -> "RunDir":
    """Return the run's folder with its secret and its lock."""
    from hexcloud.adapters.run_dir import RunDir

    return RunDir(Path(run.run_dir))


def market_source(run: RunRecord) -> "MarketSource":
    """Return the run's market: the snapshot, with the run's price trace played over it on the run clock."""
    from hexcloud.adapters.markets.trace import TraceMarket

    source, trace = _snapshot(run.policy.clouds), _trace(run)
    return source if trace is None else TraceMarket(source, trace, run.created_wall_s)


def _trace(run: RunRecord) -> "Trace | None":
    """Return the run's trace. A run that ends does without one that cannot be read: nothing may keep machines alive."""
    from hexcloud.adapters.markets.trace import load_trace

    if run.spec.trace is None:
        return None
    try:
        return load_trace(run.spec.trace)
    except ConfigError:
        if run.state is RunState.STOPPING:
            return None
        raise


def provisioner(run: RunRecord) -> "Provisioner":
    """Return who rents the run's machines."""
    from hexcloud.adapters.clock import RunClock
    from hexcloud.adapters.provisioners.local import LocalProvisioner

    return LocalProvisioner(Path(run.run_dir), RunClock.of(run), _trace(run), origin_s=run.created_wall_s)


def secrets_of(run: RunRecord) -> "RunSecrets":
    """Return the run's secrets. Raises StoreError when they are gone."""
    from hexcloud.controller.outside import RunSecrets

    return RunSecrets(key=run_dir(run).secret())


def coordinator(run: RunRecord) -> "Coordinator":
    """Return the line to the run's coordinator."""
    from hexcloud.adapters.coordinator import Credentials, HttpCoordinator

    keys = secrets_of(run)
    credentials = Credentials(run_id=run.id, secret=keys.run_secret, token=keys.controller_token)
    return HttpCoordinator(Path(run.run_dir) / POINTER_FILE, credentials)


def clock(run: RunRecord) -> "Clock":
    """Return the run's clock."""
    from hexcloud.adapters.clock import RunClock

    return RunClock.of(run)


def timer(run: RunRecord) -> "Timer":
    """Return the run's timer, on the run clock."""
    from hexcloud.adapters.clock import RunClock
    from hexcloud.adapters.timer import RunTimer

    return RunTimer(RunClock.of(run))


def controller(run: RunRecord, store: "Store") -> "Controller":
    """Return the controller of a run whose folder exists and whose lock the caller holds."""
    from hexcloud.adapters.clock import RunClock
    from hexcloud.controller.outside import EmulationPlan, Ports
    from hexcloud.controller.reconcile import Controller

    line = coordinator(run)
    ports = Ports(
        clock=RunClock.of(run),
        market=market_source(run),
        provisioner=provisioner(run),
        coordinator=lambda: line,
        store=store,
        secrets=secrets_of(run),
        emulation=EmulationPlan(clock_scale=run.clock_scale, local_weight_bytes=LOCAL_WEIGHT_BYTES),
        python=sys.executable,
    )
    return Controller(run, ports)


def report_of(run_id: RunId) -> "Report":
    """Return the report of a stored run. Raises StoreError, and ConfigError when there is no such run."""
    from hexcloud.adapters.metrics import read_steps
    from hexcloud.controller.report import RunFacts, build_report

    store = open_store()
    run = store.run(run_id)
    if run is None:
        raise ConfigError(f"run {run_id!r} is unknown")
    facts = RunFacts(
        run=run,
        events=tuple(event for _, event in store.events(run_id)),
        ledger=store.ledger(run_id),
        nodes=store.nodes(run_id),
        view=store.view(run_id),
        steps=read_steps(Path(run.run_dir) / METRICS_FILE),
    )
    return build_report(facts)
