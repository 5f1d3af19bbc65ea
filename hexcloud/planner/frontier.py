"""frontier: what every throughput costs, for the plan and for simpler buyers."""

from collections.abc import Iterator

from hexcloud.domain.frozen import Frozen
from hexcloud.domain.market import Market
from hexcloud.domain.plan import Allocation
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.baselines import DEAREST, GREEDY, ON_DEMAND
from hexcloud.planner.shop import Shop, open_shop

PLAN = "the plan"
SINGLE_ANY = "best single GPU type, any tenure"
SINGLE_ON_DEMAND = "best single GPU type, on-demand"
SHARES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
"""Of the plan's throughput: where the frontier is solved."""


class FrontierStep(Frozen):
    """What buyers pay for one throughput, USD/h; buyers who cannot, or pay over DEAREST times as much, are missing."""

    samples_per_s: float
    usd_per_hour: dict[str, float]


def frontier(market: Market, workload: Workload, policy: Policy, plan: Allocation) -> Iterator[FrontierStep]:
    """Yield steps in order of throughput, from a part of what the plan makes to some times of it, one as it is solved.

    The policy's cap on the price does not count: prices over it are part of the picture. At the plan's own throughput
    the plan's price is what it is, so that the picture shows the plan.
    """
    for share in SHARES:
        samples_per_s = plan.samples_per_s * share
        changes = {"objective": Objective.MIN_COST, "target_samples_per_s": samples_per_s, "max_usd_per_hour": None}
        shop = open_shop(market, workload, policy.model_copy(update=changes), samples_per_s)
        price = plan.usd_per_hour if share == 1.0 else shop.price()
        prices = {} if price is None else {PLAN: price} | _rivals(shop.capped(DEAREST * price))
        yield FrontierStep(samples_per_s=samples_per_s, usd_per_hour=prices)


def _rivals(shop: Shop) -> dict[str, float]:
    on_demand = shop.on_demand()
    single_any, single_on_demand = shop.best_single_type(), on_demand.best_single_type()
    prices = {
        ON_DEMAND: on_demand.price(),
        SINGLE_ANY: single_any and single_any[1],
        SINGLE_ON_DEMAND: single_on_demand and single_on_demand[1],
        GREEDY: shop.greedy().price(),
    }
    return {name: price for name, price in prices.items() if price is not None}
