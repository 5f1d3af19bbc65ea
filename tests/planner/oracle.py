"""Random small markets, and brute force: every gang and every count, each rule checked from its definition."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from hexcloud.domain.fleet import FleetState, Node, NodeId, NodeStatus, RunId
from hexcloud.domain.market import LinkScope, Market, Quota
from hexcloud.domain.model import ModelSpec
from hexcloud.domain.offer import Offer, OfferId, Tenure, place_of
from hexcloud.domain.plan import Allocation, Columns, Layout, Role, RolloutColumn, SlotName, TrainerColumn
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.estimate.freshness import versions_allowed, versions_old
from hexcloud.estimate.transfer import transfer_s
from hexcloud.planner.distance import forecast_gb_per_s
from hexcloud.planner.problem import Problem

MakeOffer = Callable[..., Offer]
MakeMarket = Callable[..., Market]
Makers = tuple[MakeOffer, MakeMarket, Workload]
EXAMPLES = settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
FEWER = settings(EXAMPLES, max_examples=50)

PLACES = (("us-one", "a"), ("us-one", "b"), ("us-two", "a"), ("eu-one", "a"))


@st.composite
def offers(draw: st.DrawFn, make_offer: MakeOffer) -> tuple[Offer, ...]:
    found: dict[OfferId, Offer] = {}
    for _ in range(draw(st.integers(2, 3))):
        region, zone = draw(st.sampled_from(PLACES))
        offer = make_offer(
            draw(st.sampled_from(["big8", "lean8", "big1"])),
            float(draw(st.integers(1, 30))),
            region=region,
            zone=zone,
            tenure=draw(st.sampled_from(list(Tenure))),
            stock=draw(st.sampled_from([2, 2, 1, 1, 0])),
            vcpus=float(draw(st.sampled_from([64, 64, 64, 12]))),
            quota=draw(st.sampled_from([None, None, "q"])),
            quota_units=8.0,
            quota_global=draw(st.sampled_from([None, None, "all"])),
        )
        found[offer.id] = offer
    return tuple(found.values())


@st.composite
def columns_of(draw: st.DrawFn, offer: Offer) -> tuple[list[RolloutColumn], list[TrainerColumn]]:
    rollout = [
        RolloutColumn(
            offer_id=offer.id,
            tp=nodes,
            replicas=1,
            batch=batch,
            samples_per_s=float(draw(st.integers(3, 12))),
            generation_s=float(draw(st.sampled_from([5, 5, 60, 400]))),
            nodes=nodes,
            spread_s=float(draw(st.sampled_from([0, 0, 30]))) if nodes > 1 else 0.0,
        )
        for nodes, batch in draw(
            st.sampled_from(
                [
                    ((1, 128),),
                    ((1, 64), (1, 256)),
                    ((1, 64), (1, 512)),
                    ((2, 64), (2, 256)),
                    ((1, 64), (2, 128)),
                    (),
                ]
            )
        )
    ]
    gangs = [
        TrainerColumn(
            offer_id=offer.id,
            nodes=nodes,
            layout=Layout(ranks=nodes * offer.gpu_count),
            samples_per_s=float(rate),
            step_s=256.0 / rate,
        )
        for nodes in (1, 2)
        if (rate := draw(st.sampled_from([8, 12, 15, 4, 0]))) > 0
    ]
    return rollout, gangs


@st.composite
def fleets(draw: st.DrawFn, among: tuple[Offer, ...]) -> FleetState:
    nodes = [
        Node(
            id=NodeId(f"n{index}"),
            run_id=RunId("run"),
            slot=SlotName(f"s{index}"),
            attempt=0,
            role=draw(st.sampled_from(list(Role))),
            offer_id=draw(st.sampled_from(among)).id,
            status=NodeStatus.READY,
            requested_at_s=0.0,
        )
        for index in range(draw(st.integers(0, 2)))
    ]
    is_replica = len(nodes) == 2 and nodes[0].role is nodes[1].role is Role.ROLLOUT
    if is_replica and nodes[0].offer_id == nodes[1].offer_id:
        replica = {"gang": 2, "head": nodes[0].slot}
        nodes = [node.model_copy(update={**replica, "rank": rank}) for rank, node in enumerate(nodes)]
    return FleetState(nodes=tuple(nodes))


@st.composite
def problems(draw: st.DrawFn, makers: Makers, objective: Objective = Objective.MIN_COST) -> Problem:
    make_offer, make_market, workload = makers
    among = draw(offers(make_offer))
    rollout: list[RolloutColumn] = []
    gangs: list[TrainerColumn] = []
    for offer in among:
        own_rollout, own_gangs = draw(columns_of(offer))
        rollout += own_rollout
        gangs += own_gangs
    regional, over_all = Quota(key="q", left=24.0), Quota(key="all", left=draw(st.sampled_from([0.0, 16.0, 24.0])))
    quotas = draw(st.sampled_from([(), (regional,), (over_all,), (regional, over_all)]))
    policy = Policy(
        objective=objective,
        target_samples_per_s=float(draw(st.integers(1, 8))) if objective is Objective.MIN_COST else None,
        max_usd_per_hour=draw(st.sampled_from([None, None, None, 60.0, 150.0])),
        survival_share=draw(st.sampled_from([0.0, 0.0, 0.4])),
        max_spot_share=draw(st.sampled_from([1.0, 1.0, 0.5])),
        max_pools=draw(st.sampled_from([None, None, 2])),
    )
    return Problem(
        columns=Columns(rollout=tuple(rollout), trainer=tuple(gangs)),
        market=make_market(*among, quotas=quotas),
        workload=workload.model_copy(update={"eta": draw(st.sampled_from([4, 4, 1, 0]))}),
        policy=policy,
        fleet=draw(fleets(among)),
    )


LARGE = ModelSpec(
    name="Llama-3.1-70B",
    params=70_553_706_496,
    layers=80,
    hidden=8192,
    heads=64,
    kv_heads=8,
    head_dim=128,
    intermediate=28672,
    vocab=128_256,
    source="config.json",
)
"""It fits no machine with one of these GPUs, and two."""


@st.composite
def markets(draw: st.DrawFn, makers: Makers, spans: bool = False) -> tuple[Market, Workload, Policy]:
    """A few offers with all the columns that the estimator gives them, far too many for brute force.

    `spans`: a model that some of the machines hold only together.
    """
    make_offer, make_market, workload = makers
    found: dict[OfferId, Offer] = {}
    for _ in range(draw(st.integers(2, 5))):
        region, zone = draw(st.sampled_from(PLACES))
        kind = draw(
            st.sampled_from(["lean8", "big1", "big1", "lean8"] if spans else ["big8", "lean8", "big1", "lean2"])
        )
        most = 3 if spans and kind == "big1" else 30
        offer = make_offer(
            kind,
            float(draw(st.integers(1, most))),
            region=region,
            zone=zone,
            tenure=draw(st.sampled_from(list(Tenure))),
            stock=draw(st.sampled_from([8, 8, 4, 3] if spans else [8, 4, 2, 1])),
            vcpus=float(draw(st.sampled_from([64, 64, 12]))),
            network_gb_per_s=draw(st.sampled_from([50.0, 50.0, 1.0])),
            quota=draw(st.sampled_from([None, None, "q"])),
            quota_units=8.0,
        )
        found[offer.id] = offer
    policy = Policy(
        target_samples_per_s=1.0,
        survival_share=draw(st.sampled_from([0.0, 0.4])),
        max_spot_share=draw(st.sampled_from([1.0, 1.0, 0.5, 0.2])),
        spot_trainer=draw(st.booleans()),
        max_pools=draw(st.sampled_from([None, None, None, 2])),
    )
    quotas = draw(st.sampled_from([(), (Quota(key="q", left=24.0),)]))
    job: dict[str, object] = {
        "eta": draw(st.sampled_from([4, 4, 1, 0])),
        "samples_per_step": draw(st.sampled_from([256, 64])),
    }
    if spans:
        job |= {"model": LARGE, "spans": draw(st.sampled_from([(2,), (2, 4), (2, 4, 8)]))}
    return make_market(*found.values(), quotas=quotas), workload.model_copy(update=job), policy


@dataclass(frozen=True)
class Pick:
    """One gang and counts of rollout columns: a point the oracle judges."""

    gang: TrainerColumn
    counts: tuple[tuple[RolloutColumn, int], ...]


def picks(problem: Problem) -> Iterator[Pick]:
    ranges = [range(problem.stock[column.offer_id] // column.nodes + 1) for column in problem.rollout]
    for gang in problem.gangs:
        for counts in itertools.product(*ranges):
            yield Pick(gang, tuple((c, n) for c, n in zip(problem.rollout, counts, strict=True) if n))


def brute_force(problem: Problem, samples_per_s: float) -> float | None:
    prices = [cost(problem, pick, samples_per_s) for pick in picks(problem) if not broken(problem, pick, samples_per_s)]
    return min(prices, default=None)


def cost(problem: Problem, pick: Pick, samples_per_s: float) -> float:
    return spend(problem, pick, samples_per_s) + expected_loss(problem, pick)


def expected_loss(problem: Problem, pick: Pick) -> float:
    market, trainer = problem.market, problem.offers[pick.gang.offer_id]
    if trainer.tenure is Tenure.ON_DEMAND:
        return 0.0
    calibration = market.calibration
    per_hour = calibration.spot_interruptions_per_hour * pick.gang.nodes
    return rent(problem, pick) * per_hour * (calibration.restart_s + calibration.startup_s) / 3600


def rent(problem: Problem, pick: Pick) -> float:
    rollout = sum(n * c.nodes * problem.offers[c.offer_id].usd_per_hour for c, n in pick.counts)
    return rollout + pick.gang.nodes * problem.offers[pick.gang.offer_id].usd_per_hour


def spend(problem: Problem, pick: Pick, samples_per_s: float) -> float:
    live = problem.fleet.live()
    training = [node.offer_id for node in live if node.role is Role.TRAINER]
    rolling = [(node.offer_id, node.gang) for node in live if node.role is Role.ROLLOUT and node.rank == 0]
    start_h = problem.market.calibration.startup_s / 3600 / problem.policy.horizon_h
    starting = 0.0
    for offer in problem.offers.values():
        new = 0
        for nodes in {c.nodes for c, _ in pick.counts}:
            held = sum(n for c, n in pick.counts if (c.offer_id, c.nodes) == (offer.id, nodes))
            new += nodes * max(0, held - rolling.count((offer.id, nodes)))
        if pick.gang.offer_id == offer.id:
            new += max(0, pick.gang.nodes - training.count(offer.id))
        starting += new * offer.usd_per_hour * start_h
    return rent(problem, pick) + starting + egress(problem, pick, samples_per_s)


def egress(problem: Problem, pick: Pick, samples_per_s: float) -> float:
    usd = {row.scope: row.usd_per_gb for row in problem.market.network.egress}
    trainer = problem.offers[pick.gang.offer_id]
    places = {(o.region, o.zone) for o in (problem.offers[c.offer_id] for c, _ in pick.counts)}
    total = 0.0
    for region in {region for region, _ in places}:
        zones = {zone for own, zone in places if own == region}
        if region == trainer.region:
            total += usd[LinkScope.REGION] * len(zones - {trainer.zone})
            continue
        same = region.split("-")[0] == trainer.region.split("-")[0]
        total += usd[LinkScope.CONTINENT if same else LinkScope.WORLD] + usd[LinkScope.REGION] * (len(zones) - 1)
    weights_gb = problem.workload.version_bytes / 1e9
    return total * weights_gb * 3600 * samples_per_s / problem.workload.samples_per_step


def broken(problem: Problem, pick: Pick, samples_per_s: float) -> list[str]:
    """Names of the rules a pick breaks."""
    policy, workload, target = problem.policy, problem.workload, samples_per_s
    held = {name: sum(n * c.nodes for c, n in pick.counts if c.offer_id == name) for name in problem.offers}
    held[pick.gang.offer_id] += pick.gang.nodes
    rates = [(problem.offers[c.offer_id], n * problem.rate(c, target)) for c, n in pick.counts]
    total = sum(rate for _, rate in rates)
    full = [(problem.offers[c.offer_id], n * problem.full_rate(c)) for c, n in pick.counts]
    spot = sum(rate for offer, rate in full if offer.tenure is Tenure.SPOT)
    tight = 1e-6
    checks = {
        "train_rate": pick.gang.samples_per_s * problem.duty >= target - tight,
        "rollout_rate": total >= target - tight,
        "stock": all(count <= problem.stock[name] for name, count in held.items()),
        "quota": all(
            sum(n * draw_on(problem.offers[name], key) for name, n in held.items()) <= left
            for key, left in problem.quotas.items()
        ),
        "spot_share": spot <= policy.max_spot_share * sum(rate for _, rate in full) + tight,
        "pools": sum(1 for count in held.values() if count) <= (policy.max_pools or 99),
        "in_flight": sum(n * c.slots for c, n in pick.counts) <= (workload.eta + 1) * workload.samples_per_step,
        "reward_cpu": sum(n * problem.reward_vcpus(c) for c, n in pick.counts)
        >= target * workload.reward_cpu_s_per_sample - tight,
        "survive": all(
            total - sum(rate for offer, rate in rates if offer.domain == domain)
            >= policy.survival_share * target - tight
            for domain in {offer.domain for offer in problem.offers.values()}
        ),
        "hourly_budget": spend(problem, pick, target) <= (policy.max_usd_per_hour or 1e9) + tight,
        "reach": all(is_near(problem, pick.gang, c, target) for c, _ in pick.counts),
    }
    return [name for name, is_kept in checks.items() if not is_kept]


def draw_on(offer: Offer, key: str) -> float:
    """Units of a quota that one machine takes: eight of its region's, and its GPUs of the one over all regions."""
    return 8.0 * (offer.quota == key) + offer.gpu_count * (offer.quota_global == key)


def is_near(problem: Problem, gang: TrainerColumn, column: RolloutColumn, samples_per_s: float) -> bool:
    """Is the p95 sample young enough? Ways are measured from the best network of the gang's zone."""
    offer, network = problem.offers[column.offer_id], problem.market.network
    zone = {one.offer_id for one in problem.gangs if place_of(one.offer_id) == place_of(gang.offer_id)}
    travel_s = min(
        transfer_s(problem.workload.version_bytes, forecast_gb_per_s(problem.offers[name], offer, network))
        for name in zone
    )
    workload, step_s = problem.workload, problem.workload.samples_per_step / samples_per_s
    # What a replica hands on among its machines is part of the way.
    age = versions_old(workload, column.tp, column.generation_s, travel_s + column.spread_s, step_s)
    return age <= versions_allowed(workload) * (1 + 1e-9)


def as_pick(allocation: Allocation) -> Pick:
    return Pick(allocation.trainer.column, tuple((share.column, share.count) for share in allocation.rollout))
