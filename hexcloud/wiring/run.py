"""A run and everything around it: its record, its clock, its machines, its controller, its report."""

import secrets
import sys
import time
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from hexcloud.domain.errors import ConfigError
from hexcloud.domain.fleet import RunId
from hexcloud.domain.messages import POINTER_FILE
from hexcloud.domain.metrics import METRICS_FILE
from hexcloud.domain.run import RunRecord, RunSpec, RunState
from hexcloud.domain.training import Precision
from hexcloud.wiring.market import believed_market
from hexcloud.wiring.places import home, open_store
from hexcloud.wiring.plan import PlanInput, played, require_runnable
from hexcloud.wiring.provider import authority_of, objects_of, passed_env, provisioner_of, timing_of
from hexcloud.wiring.task import absolute_task
from hexcloud.wiring.training import absolute_training

if TYPE_CHECKING:
    from hexcloud.adapters.markets.trace import MarketTrace
    from hexcloud.adapters.run_dir import RunDir
    from hexcloud.controller.outside import RunSecrets
    from hexcloud.controller.reconcile import Controller
    from hexcloud.domain.plan import Allocation
    from hexcloud.domain.report import Report
    from hexcloud.domain.workload import Workload
    from hexcloud.ports import Clock, Coordinator, MarketSource, Provisioner, Store, Timer

LOCAL_STEPS_PER_WALL_S = 1.0
"""Speed of the emulated run: a step (256 samples of the tiny task) a second leaves two cores half idle."""
LOCAL_WEIGHT_BYTES = 540_000.0
"""safetensors file of the embedded default's policy, 133,120 parameters in fp32."""


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
        clock_scale=1.0 if spec.is_real else _local_scale(given.workload, samples_per_s),
        run_dir=str(run_dir),
        output=str(Path(spec.output).absolute()) if spec.output else str(run_dir / "output"),
    )


def _local_scale(workload: "Workload", samples_per_s: float) -> float:
    return workload.samples_per_step * LOCAL_STEPS_PER_WALL_S / samples_per_s


def begun_now(run: RunRecord, agreed: "Allocation | None" = None) -> RunRecord:
    """Return a run whose clock goes from now on: while its user thinks the plan over, emulated prices stand still.

    `agreed` is the plan that its user said yes to.
    """
    now = time.time()
    begun = run.model_copy(update={"clock_origin_wall_s": now, "agreed": agreed})
    return begun.model_copy(update={"clock_origin_run_s": now}) if run.spec.is_real else begun


def _absolute(spec: RunSpec) -> RunSpec:
    """Return a run's spec as it reads from any folder: another process may go on with the run from elsewhere."""
    from hexcloud.adapters.files import POLICY_SUFFIXES, is_path
    from hexcloud.adapters.markets.trace_spec import parse_trace

    files = {"output": spec.output}
    files |= {"policy": spec.policy} if is_path(spec.policy, *POLICY_SUFFIXES) else {}
    absolute = {field: str(Path(file).absolute()) for field, file in files.items() if file}
    trace = parse_trace(spec.trace).absolute() if spec.trace else None
    return spec.model_copy(update={**absolute, **absolute_task(spec), **absolute_training(spec), "trace": trace})


def with_budget(run: RunRecord, budget_usd: float | None) -> RunRecord:
    """Return a run with another cap on its whole spend; None leaves it as it is."""
    if budget_usd is None:
        return run
    spec = run.spec.model_copy(update={"budget": budget_usd})
    policy = run.policy.model_copy(update={"budget_usd": budget_usd})
    return run.model_copy(update={"spec": spec, "policy": policy})


def resumed_run(old: RunRecord, steps: int | None) -> RunRecord:
    """Return the record with which a finished or broken run goes on from its last checkpoint.

    Its clock stood still, unless its machines are real.
    """
    now = time.time()
    ran_until_s = max((event.at_s for _, event in open_store().events(old.id)), default=old.clock_origin_run_s)
    return old.model_copy(
        update={
            "spec": old.spec.model_copy(update={"steps": steps or old.spec.steps}),
            "state": RunState.RUNNING,
            "reason": "",
            "clock_origin_run_s": now if old.spec.is_real else ran_until_s,
            "clock_origin_wall_s": now,
        }
    )


def resumed_input(run: RunRecord) -> PlanInput:
    """Return what a run that goes on plans: its own market, at the moment at which its clock stood still.

    Raises ConfigError when it cannot go on: its trace or its output is gone.
    """
    require_runnable(run.spec, run.policy)
    return PlanInput(market=market_source(run).market(run.clock_origin_run_s), workload=run.workload, policy=run.policy)


def run_dir(run: RunRecord) -> "RunDir":
    """Return the run's folder with its secret and its lock."""
    from hexcloud.adapters.run_dir import RunDir

    return RunDir(Path(run.run_dir))


def market_source(run: RunRecord) -> "MarketSource":
    """Return the run's market: what is believed, with the run's price trace played over it on the run clock."""
    return played(believed_market(run.policy.clouds), _trace(run), run.created_wall_s)


def _trace(run: RunRecord) -> "MarketTrace | None":
    """Return the run's trace. A run that ends does without one that cannot be read: nothing may keep machines alive."""
    from hexcloud.adapters.markets.open_trace import open_trace

    if run.spec.trace is None:
        return None
    try:
        return open_trace(run.spec.trace)
    except ConfigError:
        if run.state is RunState.STOPPING:
            return None
        raise


def provisioner(run: RunRecord) -> "Provisioner":
    """Return who rents the run's machines."""
    if run.spec.is_real:
        return provisioner_of(run)
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
    authority = authority_of(run, keys.key)
    ca_pem = authority.ca_pem if authority else ""
    credentials = Credentials(run_id=run.id, secret=keys.run_secret, token=keys.controller_token, ca_pem=ca_pem)
    return HttpCoordinator(Path(run.run_dir) / POINTER_FILE, credentials, objects=objects_of(run.spec, run.id))


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

    line, keys = coordinator(run), secrets_of(run)
    emulation = EmulationPlan(clock_scale=run.clock_scale, local_weight_bytes=_local_weight_bytes(run.spec))
    ports = Ports(
        clock=RunClock.of(run),
        market=market_source(run),
        provisioner=provisioner(run),
        coordinator=lambda: line,
        store=store,
        secrets=keys,
        emulation=None if run.spec.is_real else emulation,
        authority=authority_of(run, keys.key),
        pass_env=passed_env(run),
        timing=timing_of(run),
        python="python" if run.spec.is_real else sys.executable,
    )
    return Controller(run, ports)


def _local_weight_bytes(spec: RunSpec) -> float:
    """Return the size of the weights that really travel on this machine."""
    per_value = spec.precision.bytes_per_value
    if spec.weights is None:
        return LOCAL_WEIGHT_BYTES * per_value / Precision.FP32.bytes_per_value
    from hexcloud.adapters.engines.model_folder import read_shapes

    return float(sum(map(prod, read_shapes(Path(spec.weights)).values())) * per_value)


def bring_results(run: RunRecord) -> None:
    """Copy steps and, when there is one, the result of a run from its store into its own folder. Raises StoreError."""
    from hexcloud.adapters.run_copy import RunCopy

    objects = objects_of(run.spec, run.id)
    if objects is None:
        return
    copy = RunCopy(objects, Path(run.run_dir), secrets_of(run).controller_token)
    copy.bring_metrics()
    copy.bring_output(Path(run.output))


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
