"""baselines: what a simpler buyer would pay. The same model with variables removed, at the plan's throughput."""

from collections.abc import Callable
from dataclasses import replace

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer, Tenure
from hexcloud.domain.plan import Allocation, Columns
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.report import BaselineRow
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import MIP_GAP, allocate
from hexcloud.planner.clash import clashing_rules
from hexcloud.planner.columns import build_columns
from hexcloud.planner.greedy import greedy_columns
from hexcloud.planner.milp import INFINITY
from hexcloud.planner.problem import Problem
from hexcloud.planner.screen import screen
from hexcloud.planner.search import cheapest
from hexcloud.planner.words import rule_in_words

GREEDY = "greedy dollars per sample"
ON_DEMAND = "on-demand only"
DEAREST = 3.0
"""A buyer who pays over so many times the plan's price: the exact figure tells nobody anything and takes longest."""


def baselines(
    market: Market, workload: Workload, policy: Policy, plan: Allocation | None = None
) -> tuple[BaselineRow, ...]:
    """Return what buyers with fewer choices pay per hour, cheapest first, then those who cannot.

    One GPU type on-demand (every type), one GPU type in any tenure (the best), on-demand of all types, one cloud, and
    the picks of who takes the best dollars per sample (`greedy`), of which the model then needs as few as it can. Every
    buyer has the same job, target and wishes but not the policy's cap on the price: a baseline over the cap is still a
    price. Prices are the MILP's objective, like `Allocation.usd_per_hour`: rent, egress, start-up spread over the
    horizon, risk. Where `plan` is given, buyers make what it makes and are not priced over DEAREST times its price;
    without it and without a target `allocate` finds the most, with its InfeasibleError and ConfigError.
    """
    shop = _shop(market, workload, policy, plan)
    on_demand = shop.only(lambda offer: offer.tenure is Tenure.ON_DEMAND)
    rows = [on_demand.row(ON_DEMAND)]
    rows += [on_demand.of_gpu(gpu).row(f"only {gpu}, on-demand") for gpu in shop.values(lambda offer: offer.gpu)]
    rows += [shop.of_cloud(cloud).row(f"only {cloud}") for cloud in shop.values(lambda offer: offer.cloud)]
    rows.append(shop.greedy().row(GREEDY))
    best = shop.best_single_type()
    rows += [] if best is None else [best]
    return tuple(sorted(rows, key=lambda row: (row.usd_per_hour is None, row.usd_per_hour or 0.0, row.name)))


class _Shop:
    """A problem, the throughput that every buyer must make, and what each buyer would pay."""

    def __init__(self, problem: Problem, samples_per_s: float) -> None:
        self.problem = problem
        self.samples_per_s = samples_per_s

    def values(self, of: Callable[[Offer], str]) -> list[str]:
        """Return the different values of one fact of the offers, sorted."""
        return sorted({of(offer) for offer in self.problem.offers.values()})

    def only(self, keep: Callable[[Offer], bool]) -> "_Shop":
        """Return the shop of a buyer who looks at some offers only."""
        kept = {offer.id for offer in self.problem.offers.values() if keep(offer)}
        columns = Columns(
            rollout=tuple(column for column in self.problem.rollout if column.offer_id in kept),
            trainer=tuple(column for column in self.problem.gangs if column.offer_id in kept),
        )
        return _Shop(replace(self.problem, columns=columns), self.samples_per_s)

    def of_gpu(self, gpu: str) -> "_Shop":
        """Return the shop of a buyer of one GPU type."""
        return self.only(lambda offer: offer.gpu == gpu)

    def of_cloud(self, cloud: str) -> "_Shop":
        """Return the shop of a buyer who stays in one cloud."""
        return self.only(lambda offer: offer.cloud == cloud)

    def greedy(self) -> "_Shop":
        """Return the shop of a buyer who takes the best dollars per sample, one machine after the other."""
        return _Shop(
            replace(self.problem, columns=greedy_columns(self.problem, self.samples_per_s)), self.samples_per_s
        )

    def row(self, name: str) -> BaselineRow:
        """Return the buyer's price, or the rules that leave none."""
        found = cheapest(self.problem, self.samples_per_s, MIP_GAP)
        if found is None:
            if cap := self.problem.policy.max_usd_per_hour:
                return BaselineRow(name=name, usd_per_hour=None, reason=f"not for {cap:.2f} USD/h, if at all")
            rules = clashing_rules(self.problem, self.samples_per_s)
            words = "; ".join(dict.fromkeys(rule_in_words(rule) for rule in rules))
            return BaselineRow(name=name, usd_per_hour=None, reason=words or "no whole number of machines fits")
        return BaselineRow(name=name, usd_per_hour=found.solution.objective)

    def floor_usd_per_hour(self) -> float:
        """Return the price of the cheapest gang that trains fast enough, which no plan is under; else infinity."""
        able = (gang for gang in self.problem.gangs if gang.samples_per_s * self.problem.duty >= self.samples_per_s)
        return min((self.problem.gang_usd_per_hour(gang) for gang in able), default=INFINITY)

    def best_single_type(self) -> BaselineRow | None:
        """Return the cheapest buyer of one GPU type in any tenure; types are tried by their floor."""
        best: BaselineRow | None = None
        floors = sorted((self.of_gpu(gpu).floor_usd_per_hour(), gpu) for gpu in self.values(lambda offer: offer.gpu))
        for floor, gpu in floors:
            if floor == INFINITY or (best is not None and floor >= (best.usd_per_hour or 0.0)):
                break
            row = self.of_gpu(gpu).row(f"only {gpu}, any tenure")
            if row.usd_per_hour is not None and (best is None or row.usd_per_hour < (best.usd_per_hour or 0.0)):
                best = row
        return best


def _shop(market: Market, workload: Workload, policy: Policy, plan: Allocation | None) -> _Shop:
    """Return the shop of the buyer with every choice; without a target, at the most the policy's limits allow."""
    fleet = FleetState()
    columns, _ = build_columns(screen(market, workload, policy, fleet).offers, market, workload, policy)
    asked = policy.target_samples_per_s if policy.objective is Objective.MIN_COST else None
    known = plan or (None if asked else allocate(columns, market, workload, policy, fleet))
    samples_per_s = asked or (known.samples_per_s if known else 0.0)
    cap = DEAREST * plan.usd_per_hour if plan else None
    capped = policy.model_copy(update={"max_usd_per_hour": cap})
    return _Shop(Problem(columns, market, workload, capped, fleet), samples_per_s)
