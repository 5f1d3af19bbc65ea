"""frontier: what every throughput costs, for the plan and for simpler buyers."""

from collections import Counter
from collections.abc import Callable, Iterator

from hexcloud.domain.frozen import Frozen
from hexcloud.domain.market import Market
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Allocation
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.baselines import DEAREST, GREEDY, ON_DEMAND, SKYPILOT
from hexcloud.planner.search import Held, held_in
from hexcloud.planner.shop import Shop, open_shop

PLAN = "the plan"
SINGLE_ANY = "best single GPU type, any tenure"
SINGLE_ON_DEMAND = "best single GPU type, on-demand"
SHARES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
"""Of the plan's throughput: where the frontier is solved."""


Fleet = Counter[OfferId]
"""Machines of each offer."""


class FrontierStep(Frozen):
    """What buyers pay for one throughput, USD/h; buyers who cannot, or pay over DEAREST times as much, are missing."""

    samples_per_s: float
    usd_per_hour: dict[str, float]


Places = Callable[[tuple[Fleet, ...]], tuple[frozenset[OfferId], ...]]
"""Where another optimizer would rent the machines of each fleet; nothing where it does not know."""


def frontier(
    market: Market, workload: Workload, policy: Policy, plan: Allocation, places: Places | None = None
) -> Iterator[FrontierStep]:
    """Yield steps in order of throughput, from a part of what the plan makes to some times of it, one as it is solved.

    The policy's cap on the price does not count: prices over it are part of the picture. At the plan's own throughput
    the plan's price is what it is, so that the picture shows the plan. `places` is asked once, about all steps.
    """
    paces = [plan.samples_per_s * share for share in SHARES]
    shops = [_shop(market, workload, policy, pace) for pace in paces]
    bought = [_own(plan) if shop.samples_per_s == plan.samples_per_s else _bought(shop) for shop in shops]
    picks = places(tuple(fleet for _, fleet in bought)) if places else tuple(frozenset[OfferId]() for _ in bought)
    for shop, (price, _), picked in zip(shops, bought, picks, strict=True):
        prices = {} if price is None else {PLAN: price} | _rivals(shop.capped(DEAREST * price), picked)
        yield FrontierStep(samples_per_s=shop.samples_per_s, usd_per_hour=prices)


def _shop(market: Market, workload: Workload, policy: Policy, samples_per_s: float) -> Shop:
    changes = {"objective": Objective.MIN_COST, "target_samples_per_s": samples_per_s, "max_usd_per_hour": None}
    return open_shop(market, workload, policy.model_copy(update=changes), samples_per_s)


def _own(plan: Allocation) -> tuple[float | None, Fleet]:
    return plan.usd_per_hour, _fleet(Held.of(plan))


def _bought(shop: Shop) -> tuple[float | None, Fleet]:
    found = shop.best()
    return (None, Counter()) if found is None else (found.solution.objective, _fleet(held_in(found)))


def _fleet(held: Held) -> Fleet:
    machines: Fleet = Counter({held.gang.offer_id: held.gang.nodes})
    for column, count in held.rollout:
        machines[column.offer_id] += count * column.nodes
    return machines


def _rivals(shop: Shop, picked: frozenset[OfferId]) -> dict[str, float]:
    on_demand = shop.on_demand()
    single_any, single_on_demand = shop.best_single_type(), on_demand.best_single_type()
    prices = {
        ON_DEMAND: on_demand.price(),
        SINGLE_ANY: single_any and single_any[1].solution.objective,
        SINGLE_ON_DEMAND: single_on_demand and single_on_demand[1].solution.objective,
        GREEDY: shop.greedy().price(),
        SKYPILOT: shop.only(lambda offer: offer.id in picked).price() if picked else None,
    }
    return {name: price for name, price in prices.items() if price is not None}
