"""shop: a problem, the throughput that every buyer must make, and what buyers with fewer choices would pay for it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer, Tenure
from hexcloud.domain.policy import Policy
from hexcloud.domain.report import BaselineRow
from hexcloud.domain.workload import Workload
from hexcloud.planner.clash import clashing_rules
from hexcloud.planner.columns import build_columns
from hexcloud.planner.greedy import greedy_columns
from hexcloud.planner.milp import INFINITY
from hexcloud.planner.problem import Problem
from hexcloud.planner.screen import screen
from hexcloud.planner.search import Found, cheapest
from hexcloud.planner.words import rule_in_words

GAP = 1e-3
"""Relative; that of a plan."""

CANNOT = "cannot make it"
"""How the reason begins of a buyer who could not do the job for any money."""
_ANY = 0.9
"""Relative gap: any plan will do."""


def open_shop(
    market: Market, workload: Workload, policy: Policy, samples_per_s: float, most_usd_per_hour: float | None = None
) -> "Shop":
    """Return the shop of a buyer with every choice, who pays at most so much; the policy's own cap does not count."""
    fleet = FleetState()
    columns, _ = build_columns(screen(market, workload, policy, fleet).offers, market, workload, policy)
    capped = policy.model_copy(update={"max_usd_per_hour": most_usd_per_hour})
    return Shop(Problem(columns, market, workload, capped, fleet), samples_per_s)


class Bid(NamedTuple):
    """What one buyer pays, and the machines he pays it for; None where he cannot do the job."""

    row: BaselineRow
    found: Found | None

    @classmethod
    def of(cls, name: str, found: Found) -> "Bid":
        """Return the bid of a buyer who can."""
        return cls(BaselineRow(name=name, usd_per_hour=found.solution.objective), found)

    @classmethod
    def none(cls, name: str, reason: str) -> "Bid":
        """Return the bid of a buyer who cannot."""
        return cls(BaselineRow(name=name, usd_per_hour=None, reason=reason), None)


@dataclass(frozen=True)
class Shop:
    """What one buyer chooses from."""

    problem: Problem
    samples_per_s: float

    def values(self, of: Callable[[Offer], str]) -> list[str]:
        """Return the different values of one fact of the offers, sorted."""
        return sorted({of(offer) for offer in self.problem.offers.values()})

    def only(self, keep: Callable[[Offer], bool]) -> "Shop":
        """Return the shop of a buyer who looks at some offers only."""
        kept = {offer.id for offer in self.problem.offers.values() if keep(offer)}
        return replace(self, problem=replace(self.problem, columns=self.problem.kinds.only(kept)))

    def on_demand(self) -> "Shop":
        """Return the shop of a buyer who takes nothing that can be taken back."""
        return self.only(lambda offer: offer.tenure is Tenure.ON_DEMAND)

    def of_gpu(self, gpu: str) -> "Shop":
        """Return the shop of a buyer of one GPU type."""
        return self.only(lambda offer: offer.gpu == gpu)

    def of_cloud(self, cloud: str) -> "Shop":
        """Return the shop of a buyer who stays in one cloud."""
        return self.only(lambda offer: offer.cloud == cloud)

    def greedy(self) -> "Shop":
        """Return the shop of a buyer who takes the best dollars per sample, one machine after the other."""
        return replace(self, problem=replace(self.problem, columns=greedy_columns(self.problem, self.samples_per_s)))

    def capped(self, most_usd_per_hour: float) -> "Shop":
        """Return the same shop for a buyer who pays at most so much."""
        policy = self.problem.policy.model_copy(update={"max_usd_per_hour": most_usd_per_hour})
        return replace(self, problem=replace(self.problem, policy=policy))

    def best(self) -> Found | None:
        """Return the cheapest plan, or None where the buyer cannot do the job."""
        return cheapest(self.problem, self.samples_per_s, GAP)

    def price(self) -> float | None:
        """Return what the cheapest plan costs, USD/h, or None where the buyer cannot do the job."""
        found = self.best()
        return None if found is None else found.solution.objective

    def bid(self, name: str) -> Bid:
        """Return the buyer's price and machines, or the rules that leave none."""
        if (found := self.best()) is not None:
            return Bid.of(name, found)
        if cap := self.problem.policy.max_usd_per_hour:
            return Bid.none(name, self._why_not_for(cap))
        rules = clashing_rules(self.problem, self.samples_per_s, is_market=False)
        words = "; ".join(dict.fromkeys(rule_in_words(rule) for rule in rules))
        return Bid.none(name, words or "no whole number of machines fits")

    def _why_not_for(self, cap_usd_per_hour: float) -> str:
        if self.floor_usd_per_hour() == INFINITY:
            return f"{CANNOT}: none of its gangs trains fast enough"
        policy = self.problem.policy.model_copy(update={"max_usd_per_hour": None})
        able = cheapest(replace(self.problem, policy=policy), self.samples_per_s, _ANY)
        return f"{CANNOT} under the plan's rules" if able is None else f"pays over {cap_usd_per_hour:.2f} USD/h"

    def floor_usd_per_hour(self) -> float:
        """Return the price of the cheapest gang that trains fast enough, which no plan is under; else infinity."""
        able = self.problem.gang_table.between(self.samples_per_s, self.samples_per_s)
        return float(able.usd_per_hour.min(initial=INFINITY))

    def best_single_type(self) -> tuple[str, Found] | None:
        """Return GPU and plan of the cheapest buyer of one GPU type; types are tried by their floor."""
        best: tuple[str, Found] | None = None
        floors = sorted((self.of_gpu(gpu).floor_usd_per_hour(), gpu) for gpu in self.values(lambda offer: offer.gpu))
        for floor, gpu in floors:
            if floor == INFINITY or (best is not None and floor >= best[1].solution.objective):
                break
            found = self.of_gpu(gpu).best()
            if found is not None and (best is None or found.solution.objective < best[1].solution.objective):
                best = (gpu, found)
        return best
