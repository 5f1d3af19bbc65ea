"""What a plan is made from: the user's words, the catalog's facts and the believed market."""

import os
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hexcloud.domain.errors import ConfigError
from hexcloud.domain.generation import EngineKind
from hexcloud.domain.market import Market
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.run import RunSpec
from hexcloud.domain.target import parse_target
from hexcloud.domain.training import Precision
from hexcloud.domain.workload import Workload
from hexcloud.wiring.disks import require_disks
from hexcloud.wiring.layouts import layouts_of
from hexcloud.wiring.market import believed_market, measured_factors
from hexcloud.wiring.provider import largest_gang, rented_clouds, require_provider
from hexcloud.wiring.spans import spans_of
from hexcloud.wiring.task import require_task, require_usable_task
from hexcloud.wiring.training import require_trainable
from hexcloud.wiring.weights_stores import require_weights_stores

if TYPE_CHECKING:
    from hexcloud.adapters.markets.trace import MarketTrace
    from hexcloud.controller.needs import CloudNeeds
    from hexcloud.domain.fleet import MeasuredLink
    from hexcloud.domain.offer import OfferId
    from hexcloud.domain.plan import PlanResult
    from hexcloud.ports import MarketSource

DEFAULT_TARGET = "20k"
"""What a run aims at whose policy, too, has neither target nor hourly cap, trained tok/s."""


@dataclass(frozen=True)
class PlanInput:
    """What a plan is made from."""

    market: Market
    workload: Workload
    policy: Policy
    links: "tuple[MeasuredLink, ...]" = ()
    """Measured between the user's own machines."""
    run_samples: float | None = None
    """Samples of the whole run: its steps. None for the rest of one that began before."""


def workload_of(spec: RunSpec) -> Workload:
    """Return the RL job of a run on real machines, whoever emulates them.

    Raises ConfigError for an unknown model or task, or a batch of broken groups.
    """
    from hexcloud.adapters.files import find_model

    require_task(spec.task)
    model, training = find_model(spec.model), spec.training
    if spec.batch % spec.group:
        raise ConfigError(f"batch: {spec.batch} is not a multiple of group {spec.group}")
    return Workload(
        model=model,
        prompt_tokens=spec.prompt_tokens,
        response_tokens=spec.response_tokens,
        max_response_tokens=max(8192, int(spec.response_tokens * 4)),
        samples_per_step=spec.batch,
        group_size=spec.group,
        eta=spec.eta,
        prox_share=training.prox_share,
        keeps_reference=training.kl_weight > 0,
        activation_recompute=training.activation_checkpointing is not False,
        minibatches=training.minibatches,
        micro_batch_tokens=training.micro_batch_tokens,
        trainer_ranks=training.ranks,
        layouts=layouts_of(spec, model),
        published_bytes_per_param=(training.precision or Precision.BF16).bytes_per_value,
        spans=spans_of(spec),
    )


def policy_of(spec: RunSpec, workload: Workload) -> Policy:
    """Return the policy with the run's own fields over it. Raises ConfigError."""
    from hexcloud.adapters.files import load_policy

    policy = load_policy(spec.policy)
    cap = spec.max_usd_per_hour or policy.max_usd_per_hour
    is_free = cap or policy.target_samples_per_s or policy.objective is Objective.BUDGET_RUN
    asked = spec.target or (None if is_free else DEFAULT_TARGET)
    changes: dict[str, object] = {
        "target_samples_per_s": parse_target(asked, workload) if asked else policy.target_samples_per_s,
        "max_usd_per_hour": cap,
        "budget_usd": spec.budget or policy.budget_usd,
        "clouds": rented_clouds(spec, spec.cloud or policy.clouds),
        "replan": spec.replan or policy.replan,
        "max_gang_nodes": largest_gang(spec, policy.max_gang_nodes),
    }
    if policy.objective is Objective.BUDGET_RUN:
        if changes["budget_usd"] is None:
            raise ConfigError(f"policy {spec.policy!r} buys a whole run for a budget: say how much with --budget USD")
        changes["run_samples"] = policy.run_samples or _run_samples(spec, workload)
    elif changes["target_samples_per_s"] is None:
        changes["objective"] = Objective.MAX_THROUGHPUT
    return policy.model_copy(update=changes)


def snapshot_input(spec: RunSpec) -> PlanInput:
    """Return what `hexcloud plan` plans: all that is believed now. Raises ConfigError, MarketError, StoreError."""
    workload = workload_of(spec)
    policy = policy_of(spec, workload)
    require_disks(workload, policy.clouds)
    believed_market(policy.clouds)  # refuses a cloud that nobody knows
    # The whole market: a cloud that the policy leaves out is a rule, which may be what makes an ask impossible.
    market = believed_market().market(time.time())
    return PlanInput(market=market, workload=workload, policy=policy, run_samples=_run_samples(spec, workload))


def fleet_input(spec: RunSpec, path: Path) -> PlanInput:
    """Return what `hexcloud plan --fleet FILE` plans: the user's own machines. No target: they do what they can."""
    from hexcloud.adapters.fleet_file import load_fleet
    from hexcloud.planner.fleet_split import use_everything

    workload = workload_of(spec)
    market, links = load_fleet(path)
    market = market.model_copy(update={"calibration": market.calibration.with_factors(measured_factors())})
    policy = use_everything(market, policy_of(spec, workload))
    return PlanInput(market, workload, policy, links, _run_samples(spec, workload))


def _run_samples(spec: RunSpec, workload: Workload) -> float:
    return float(spec.steps * workload.samples_per_step)


def unpriced(market: Market) -> tuple[str, ...]:
    """Return the names of the user's own machines of which nobody said what they cost."""
    from hexcloud.adapters import fleet_file

    return fleet_file.unpriced(market)


def sky_picks(market: Market, result: "PlanResult") -> "frozenset[OfferId]":
    """Return the offers that SkyPilot's optimizer would take for a plan's machines, of those that the policy allows.

    Empty where SkyPilot is not installed. Raises MarketError when it fails.
    """
    counts = Counter(slot.offer_id for slot in result.plan.placement.slots)
    return sky_picks_of(market, result, (counts,))[0]


def sky_picks_of(
    market: Market, result: "PlanResult", fleets: "tuple[Counter[OfferId], ...]"
) -> "tuple[frozenset[OfferId], ...]":
    """Return the same for each of several fleets of the market whose plan turned the same offers away."""
    from hexcloud.adapters.markets import sky_optimizer

    if not sky_optimizer.is_installed():
        return tuple(frozenset() for _ in fleets)
    refused = {rejection.offer_id for rejection in result.rejections if rejection.rule != "not_chosen"}
    offers = {offer.id: offer for offer in market.offers if offer.id not in refused}
    buyers = tuple(
        tuple(
            sky_optimizer.Ask(offers[name].gpu, offers[name].gpu_count, count, offers[name].tenure)
            for name, count in sorted(counts.items())
        )
        for counts in fleets
    )
    return sky_optimizer.picks_of(buyers, tuple(offers.values()))


def run_input(spec: RunSpec) -> PlanInput:
    """Return what `hexcloud up` plans first: the market that the run will see, with its trace played at the beginning.

    Raises ConfigError also for what a run needs only later: once stored, a run that cannot go on blocks its name.
    """
    from hexcloud.adapters.markets.open_trace import open_trace

    workload = workload_of(spec)
    policy = policy_of(spec, workload)
    require_runnable(spec, policy)
    require_disks(workload, policy.clouds)
    begun_s = time.time()
    trace = None if spec.trace is None else open_trace(spec.trace)
    market = played(believed_market(policy.clouds), trace, begun_s).market(begun_s)
    require_weights_stores(spec, market)
    return PlanInput(market=market, workload=workload, policy=policy, run_samples=_run_samples(spec, workload))


def played(source: "MarketSource", trace: "MarketTrace | None", begun_s: float) -> "MarketSource":
    """Return a market with a trace played over it. `begun_s`: the run clock at the run's beginning, since the epoch."""
    from hexcloud.adapters.markets.trace import TraceMarket

    return source if trace is None else TraceMarket(source, trace, begun_s)


def require_runnable(spec: RunSpec, policy: Policy) -> None:
    """Raise ConfigError for what this version cannot rent from or train, a schedule that is none, or no place for the
    result.
    """
    from hexcloud.adapters.timer import read_schedule

    require_provider(spec)
    require_usable_task(spec)
    require_trainable(spec)
    _require_engine(spec)
    read_schedule(policy.replan, time.time())
    if spec.output is not None:
        _require_writable(Path(spec.output))


def _require_engine(spec: RunSpec) -> None:
    """Raise ConfigError where this machine's nodes could not start the engine; a rented one installs its own."""
    if spec.engine is not EngineKind.SGLANG or spec.is_real:
        return
    from hexcloud.adapters.engines.sglang_home import find_sglang

    find_sglang(os.environ).require_cpu()


def _require_writable(folder: Path) -> None:
    """Make a folder, and a file in it for a moment. Raises ConfigError: better now than after the last step."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"hexcloud")
    except OSError as error:
        raise ConfigError(f"output: {str(folder)!r} cannot be written: {error.strerror}") from error


def cloud_needs(spec: RunSpec) -> "CloudNeeds":
    """Return what the plan of a run needs of its clouds. Raises ConfigError, MarketError, PlanError."""
    from hexcloud.controller.needs import needs_of
    from hexcloud.domain.fleet import FleetState
    from hexcloud.planner.plan import make_plan

    given = snapshot_input(spec)
    plan = make_plan(given.market, given.workload, given.policy, FleetState()).plan
    return needs_of(plan, given.market)
