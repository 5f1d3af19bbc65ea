"""fleet_split: a plan for machines the user already has (`--fleet FILE`): which train, which roll out.

AReaL-Hex's loop (arXiv 2511.00796, Algorithm 1 and section 4.3): a graph cut proposes the trainer's side for a share
gamma of all FLOPS, the MILP says what each side can do, and a binary search moves gamma to where both are as fast.
"""

from dataclasses import dataclass, replace

from hexcloud.domain.errors import InfeasibleError
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market, Rejection
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import Allocation, Columns, PlanResult, SlotName
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import MIP_GAP, allocate
from hexcloud.planner.columns import build_columns
from hexcloud.planner.cut import bisect, eq3_score
from hexcloud.planner.links import Links, link_graph
from hexcloud.planner.partition import partition
from hexcloud.planner.place import place
from hexcloud.planner.problem import Problem
from hexcloud.planner.screen import screen

MAX_ROUNDS = 5
"""Cuts that are tried. The first, gamma = 1, leaves the MILP all choices, so later ones can only better the links."""
_NOBODY = FleetState()


def split_fleet(market: Market, workload: Workload, policy: Policy) -> PlanResult:
    """Return the fastest plan on a fixed fleet; offers are its machines and `stock` says how many there are.

    Prices, caps, regions and survival of the policy do not count: the machines are there. Of plans that are equally
    fast the one with the best Eq. 3 score wins. Raises InfeasibleError when no split can train.
    """
    wishes = _use_everything(market, policy)
    screened = screen(market, workload, wishes, _NOBODY)
    columns, unusable = build_columns(screened.offers, market, workload, wishes)
    problem = Problem(columns, market, workload, wishes, _NOBODY)
    allocation = _best_split(problem)
    placement = place(allocation, _NOBODY, market)
    plan = partition(placement, allocation, market, workload, _NOBODY)
    used = {slot.offer_id for slot in placement.slots}
    settled = used | {rejection.offer_id for rejection in unusable}
    reason = "idle: the plan is no faster with it"
    idle = (Rejection(offer_id=one.id, rule="idle", reason=reason) for one in screened.offers if one.id not in settled)
    return PlanResult(plan=plan, rejections=(*screened.rejections, *unusable, *idle))


def _use_everything(market: Market, policy: Policy) -> Policy:
    largest = max((offer.stock or 1 for offer in market.offers), default=1)
    return Policy(
        name=policy.name,
        objective=Objective.MAX_THROUGHPUT,
        spot_trainer=True,
        survival_share=0.0,
        max_nodes_per_pool=largest,
        max_gang_nodes=largest,
        try_unproven=True,
        horizon_h=policy.horizon_h,
        replan=policy.replan,
    )


@dataclass(frozen=True)
class _Split:
    """What one cut can do."""

    allocation: Allocation
    score: float
    trainer_is_faster: bool


def _best_split(problem: Problem) -> Allocation:
    machines = _machines(problem)
    if not machines:
        raise InfeasibleError(
            "none of the fleet's machines can do this job in any role: too small a memory, or no bf16"
        )
    links = _fleet_graph(machines, problem)
    splits: list[_Split] = []
    low, high, gamma = 0.0, 1.0, 1.0
    failure: InfeasibleError | None = None
    for _ in range(MAX_ROUNDS):
        try:
            split = _try_cut(bisect(links, gamma), links, machines, problem)
        except InfeasibleError as error:
            failure = failure or error
            low = gamma
        else:
            splits.append(split)
            low, high = (low, gamma) if split.trainer_is_faster else (gamma, high)
        gamma = (low + high) / 2
    if not splits:
        raise failure or InfeasibleError("the fleet has no machine")
    fastest = max(split.allocation.samples_per_s for split in splits)
    equally_fast = [split for split in splits if split.allocation.samples_per_s >= fastest * (1 - MIP_GAP)]
    return max(equally_fast, key=lambda split: split.score).allocation


def _machines(problem: Problem) -> dict[SlotName, Offer]:
    """Return every single machine of the fleet under a name of its own."""
    return {
        SlotName(f"{offer.id}#{index}"): offer
        for offer in problem.offers.values()
        for index in range(problem.stock[offer.id])
    }


def _fleet_graph(machines: dict[SlotName, Offer], problem: Problem) -> Links:
    links = link_graph(machines, problem.market, _NOBODY)
    for name, offer in machines.items():
        gpu = problem.market.gpus[offer.gpu]
        links.nodes[name].update(
            flops=offer.gpu_count * gpu.bf16_tflops, hbm_gb_per_s=offer.gpu_count * gpu.hbm_gb_per_s
        )
    return links


def _try_cut(side: frozenset[SlotName], links: Links, machines: dict[SlotName, Offer], problem: Problem) -> _Split:
    """Let the MILP make the best of a cut: a gang inside the trainer's side; what the gang leaves over may roll out."""
    there = [machines[name].id for name in side]
    gangs = tuple(gang for gang in problem.gangs if gang.nodes <= there.count(gang.offer_id))
    columns = Columns(rollout=problem.rollout, trainer=gangs)
    cut = replace(problem, columns=columns)
    allocation = allocate(columns, cut.market, cut.workload, cut.policy, cut.fleet)
    gang = allocation.trainer.column
    trainers = sorted(name for name in side if machines[name].id == gang.offer_id)[: gang.nodes]
    pace = allocation.samples_per_s
    made = sum(share.count * problem.rate(share.column, pace) for share in allocation.rollout)
    return _Split(allocation, eq3_score(links, frozenset(trainers)), gang.samples_per_s * problem.duty > made)
