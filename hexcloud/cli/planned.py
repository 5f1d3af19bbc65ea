"""Planned: one answer of the planner with its price, its proof and its rivals, and how `plan` and `up` show it."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hexcloud.cli.ages import PriceDates, age, price_dates
from hexcloud.cli.clashed import in_users_words, of_own_fleet
from hexcloud.cli.explained import rules_in_short
from hexcloud.cli.output import say
from hexcloud.cli.own_fleet import idle_of, idle_view, wires_fields, wires_view
from hexcloud.cli.proven import bounds
from hexcloud.cli.purse import whole_run, whole_run_fields
from hexcloud.cli.rivals import rivals_fields, rivals_view
from hexcloud.domain.errors import InfeasibleError, MarketError

if TYPE_CHECKING:
    from datetime import timedelta

    from rich.console import RenderableType

    from hexcloud.domain.offer import Offer, OfferId
    from hexcloud.domain.plan import ExecutionPlan, PlanResult, Role
    from hexcloud.domain.report import BaselineRow
    from hexcloud.wiring import PlanInput

_REJECTIONS_SHOWN = 8
_OLD_S = 86400.0
"""A price of the last day needs no word about its age: lists change less often."""
_CENT = 0.01


@dataclass(frozen=True)
class Line:
    """Machines of one offer in one role."""

    offer: str
    role: "Role"
    count: int
    total_usd_per_hour: float
    """Rent of all `count` machines."""


@dataclass(frozen=True)
class Planned:
    """A plan and everything a user is told about it."""

    given: "PlanInput"
    result: "PlanResult"
    baselines: tuple["BaselineRow", ...]
    solve_s: float
    is_own_fleet: bool = False
    """Are the machines the user's own?"""

    @property
    def running_usd_per_hour(self) -> float:
        """Rent and egress: what runs through the meter. One-off costs and expected losses are not among it."""
        allocation = self.result.plan.allocation
        return allocation.rent_usd_per_hour + allocation.egress_usd_per_hour

    @property
    def offers(self) -> "dict[str, Offer]":
        """The offers that the plan rents, by id."""
        rented = {line.offer for line in allocation_lines(self.result.plan)}
        return {offer.id: offer for offer in self.given.market.offers if offer.id in rented}

    @property
    def price_dates(self) -> PriceDates:
        """From when the prices are that the plan is made of; what else the market lists says nothing about them."""
        return price_dates(self.offers.values())

    def saving(self, row: "BaselineRow") -> float | None:
        """Return the share of a baseline's price that the plan saves; None where the baseline cannot do the job."""
        return None if not row.usd_per_hour else 1 - self.result.plan.allocation.usd_per_hour / row.usd_per_hour


def make(
    given: "PlanInput",
    asked: str | None,
    is_own_fleet: bool = False,
    *,
    with_baselines: bool = True,
    with_sky: bool = False,
) -> Planned:
    """Make a plan: on the market, or (`is_own_fleet`) by splitting the user's own machines between the roles.

    `with_sky`: one of the baselines is what SkyPilot's optimizer would rent, where it is installed; takes seconds.
    Raises RefusedError with the nearest feasible target, in the unit in which the user asked.
    """
    from hexcloud.domain.fleet import FleetState
    from hexcloud.planner.fleet_split import split_fleet
    from hexcloud.planner.outbid import compared
    from hexcloud.planner.plan import make_plan

    begun = time.perf_counter()
    try:
        if is_own_fleet:
            result = split_fleet(given.market, given.workload, given.policy, given.links)
            return Planned(given, result, (), time.perf_counter() - begun, is_own_fleet=True)
        result = make_plan(given.market, given.workload, given.policy, FleetState())
    except InfeasibleError as error:
        raise (of_own_fleet(error) if is_own_fleet else in_users_words(error, given, asked)) from error
    solve_s = time.perf_counter() - begun
    if not with_baselines:
        return Planned(given, result, (), solve_s)
    picks = _sky_picks(given, result) if with_sky else frozenset()
    result, rivals = compared(given.market, given.workload, given.policy, result, picks)
    return Planned(given, result, rivals, solve_s)


def _sky_picks(given: "PlanInput", result: "PlanResult") -> "frozenset[OfferId]":
    """Ask SkyPilot's optimizer. What it cannot say is no reason to say nothing."""
    from hexcloud import wiring
    from hexcloud.adapters.markets.sky_optimizer import is_installed

    if is_installed():
        say("asking SkyPilot's optimizer ...")
    try:
        return wiring.sky_picks(given.market, result)
    except MarketError as error:
        say(str(error))
        return frozenset()


def allocation_lines(plan: "ExecutionPlan") -> tuple[Line, ...]:
    """Return the plan's machines, trainer first, then rollout by price."""
    from hexcloud.domain.plan import Role

    allocation = plan.allocation
    gang = allocation.trainer
    trainer = Line(gang.column.offer_id, Role.TRAINER, gang.column.nodes, gang.usd_per_hour)
    rollout: dict[str, Line] = {}
    for share in allocation.rollout:  # machines of one offer that run other batches are one line to a buyer
        offer = share.column.offer_id
        known = rollout.get(offer, Line(offer, Role.ROLLOUT, 0, 0.0))
        count, total = known.count + share.machines, known.total_usd_per_hour + share.usd_per_hour
        rollout[offer] = Line(offer, Role.ROLLOUT, count, total)
    return (trainer, *sorted(rollout.values(), key=lambda line: (-line.total_usd_per_hour, line.offer)))


def plan_fields(planned: Planned) -> dict[str, object]:
    """Return the answer of `plan --json`."""
    from hexcloud.planner.explain import rejected_counts

    given, plan, allocation = planned.given, planned.result.plan, planned.result.plan.allocation
    target = given.policy.target_samples_per_s
    dates, offers = planned.price_dates, planned.offers
    return {
        "cost_usd_per_hour": allocation.usd_per_hour,
        "rent_usd_per_hour": allocation.rent_usd_per_hour,
        "egress_usd_per_hour": allocation.egress_usd_per_hour,
        "one_off_usd_per_hour": allocation.one_off_usd_per_hour,
        "risk_usd_per_hour": allocation.risk_usd_per_hour,
        **{bound.key: bound.value for bound in bounds(allocation.proof, given.workload.tokens_per_sample)},
        "gap": allocation.proof.gap,
        **whole_run_fields(planned),
        "throughput_tokens_per_s": plan.forecast.tokens_per_s,
        "target_tokens_per_s": target and target * given.workload.tokens_per_sample,
        "trainer_layout": allocation.trainer.column.layout.model_dump(mode="json"),
        "allocation": [_line_fields(line, offers[line.offer]) for line in allocation_lines(plan)],
        "baselines": rivals_fields(planned.baselines),
        "rejected": [
            {"reason": rule, "count": count} for rule, count in rejected_counts(planned.result.rejections).items()
        ],
        **({**wires_fields(plan), "idle": idle_of(planned)} if planned.is_own_fleet else {}),
        "solve_s": planned.solve_s,
        "oldest_as_of": dates.oldest.isoformat(),
        "newest_as_of": dates.newest.isoformat(),
    }


def _line_fields(line: Line, offer: "Offer") -> dict[str, object]:
    return {
        "offer": line.offer,
        "role": line.role.value,
        "count": line.count,
        "usd_per_hour": offer.usd_per_hour,
        "total_usd_per_hour": line.total_usd_per_hour,
        "as_of": offer.as_of.isoformat(),
        "source": offer.source,
    }


def plan_view(planned: Planned) -> "RenderableType":
    """Return the answer of `plan` for a reader."""
    from rich.console import Group

    rivals = (rivals_view(planned.baselines, planned.saving), "") if planned.baselines else ()
    wires = (wires_view(planned.result.plan), idle_view(planned)) if planned.is_own_fleet else ()
    return Group(_machines(planned), _sums(planned), "", *wires, *rivals, _rejected(planned))


def _machines(planned: Planned) -> "RenderableType":
    from rich.table import Table

    table = Table(title=f"Plan at prices of {planned.price_dates}", title_justify="left")
    table.add_column("offer", overflow="fold")
    table.add_column("role")
    for name in ("count", "GPUs", "USD/h"):
        table.add_column(name, justify="right")
    offers = planned.offers
    ages = {name: _old_price(planned.given.market.as_of - offer.as_of) for name, offer in offers.items()}
    if any(ages.values()):
        table.add_column("price age", justify="right")
    for line in allocation_lines(planned.result.plan):
        offer = offers[line.offer]
        gpus, old = f"{offer.gpu_count * line.count} x {offer.gpu}", (ages[offer.id],) if any(ages.values()) else ()
        table.add_row(line.offer, line.role.value, str(line.count), gpus, f"{line.total_usd_per_hour:.2f}", *old)
    return table


def _old_price(span: "timedelta") -> str:
    """Return the age of a price that is no longer of today."""
    seconds = span.total_seconds()
    return age(seconds) if seconds > _OLD_S else ""


def _sums(planned: Planned) -> str:
    allocation, forecast = planned.result.plan.allocation, planned.result.plan.forecast
    parts = (
        f"rent {allocation.rent_usd_per_hour:.2f}, egress {allocation.egress_usd_per_hour + 0.0:.2f}, "
        f"one-off {allocation.one_off_usd_per_hour:.2f}"
    )
    if allocation.risk_usd_per_hour >= _CENT:
        parts += f", expected losses {allocation.risk_usd_per_hour:.2f}"
    proven = bounds(allocation.proof, planned.given.workload.tokens_per_sample)
    proof = "; ".join(f"{bound.what} {bound.text}" for bound in proven)
    target = planned.given.policy.target_samples_per_s
    wanted = "" if target is None else f" of {target * planned.given.workload.tokens_per_sample:.0f} wanted"
    run = whole_run(planned)
    whole = "" if run is None else f"\nwhole run   {run.text}"
    return (
        f"cost        {allocation.usd_per_hour:.2f} USD/h ({parts}){whole}\n"
        f"throughput  {forecast.tokens_per_s:.0f} tok/s{wanted}, a step every {forecast.step_s:.1f} s\n"
        f"{_trainer(planned)}proof       {proof} (gap {allocation.proof.gap:.2%})\n"
        f"staleness   {forecast.staleness:.1f} of {planned.given.workload.eta} versions expected\n"
        f"held by     {_held_by(planned)}\n"
        f"solved in   {planned.solve_s:.2f} s"
    )


def _trainer(planned: Planned) -> str:
    """Return how the state spreads over the gang's GPUs; nothing of one GPU, where there is one way."""
    column = planned.result.plan.allocation.trainer.column
    if column.layout.ranks == 1:
        return ""
    machines = f"{column.nodes} machine{'s' if column.nodes > 1 else ''}"
    whose = ", as asked" if len(planned.given.workload.layouts) == 1 else ""
    return f"trainer     {column.layout.kind} over {column.layout.ranks} GPUs of {machines}{whose}\n"


def _held_by(planned: Planned) -> str:
    rules = rules_in_short(planned.result.plan.allocation.proof.binding)
    hint = " (--explain says what each is worth)" if planned.baselines or planned.is_own_fleet else ""
    return f"{rules or 'no rule'}{hint}"


def _rejected(planned: Planned) -> str:
    from hexcloud.planner.explain import rejected_counts

    counts = rejected_counts(planned.result.rejections)
    shown = ", ".join(f"{count} {rule}" for rule, count in list(counts.items())[:_REJECTIONS_SHOWN])
    more = " (--why OFFER says more)" if planned.baselines or planned.is_own_fleet else ""
    return f"not in the plan: {shown or 'nothing'}{more}"
