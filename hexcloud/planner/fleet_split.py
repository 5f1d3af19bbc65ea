"""fleet_split: a plan for machines the user already has (`--fleet FILE`): which train, which roll out.

AReaL-Hex's loop (arXiv 2511.00796, Algorithm 1 and section 4.3): a graph cut proposes the trainer's side for a share
gamma of all FLOPS, the MILP says what each side can do, and a binary search moves gamma to where both are as fast.
"""

from collections import Counter
from dataclasses import dataclass, replace

from hexcloud.domain.errors import InfeasibleError
from hexcloud.domain.fleet import FleetState, MeasuredLink
from hexcloud.domain.market import Market, Rejection
from hexcloud.domain.offer import Offer, OfferId
from hexcloud.domain.plan import (
    Allocation,
    Columns,
    Placement,
    PlanResult,
    Proof,
    RolloutColumn,
    SlotName,
    TrainerColumn,
)
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.allocate import MIP_GAP, allocate
from hexcloud.planner.columns import LARGEST_GANG, build_columns
from hexcloud.planner.cut import bisect, eq3_score
from hexcloud.planner.links import Links, link_graph, speed
from hexcloud.planner.partition import partition
from hexcloud.planner.place import place
from hexcloud.planner.problem import Problem
from hexcloud.planner.ring import best_gang
from hexcloud.planner.screen import screen

MAX_ROUNDS = 5
"""Solutions of the MILP. The first leaves it all choices: what it proves holds, and later ones, each inside a cut, can
only better the links."""
_NOBODY = FleetState()
_MEND = "`hexcloud plan` says what could be rented for it; --model takes a smaller model"


def split_fleet(
    market: Market, workload: Workload, policy: Policy, measured: tuple[MeasuredLink, ...] = ()
) -> PlanResult:
    """Return the fastest plan on a fixed fleet; offers are its machines and `stock` says how many there are.

    Prices, caps, regions and survival of the policy do not count: the machines are there. Of plans that are equally
    fast the one with the best Eq. 3 score wins. Slots have the names of machines, `name#1`, `name#2` ..., by which
    `measured` knows them too: such links win over forecast ones where the gang, its order and the routes are chosen.
    Raises InfeasibleError when no split can train.
    """
    wishes = use_everything(market, policy)
    screened = screen(market, workload, wishes, _NOBODY)
    columns, unusable = build_columns(screened.offers, market, workload, wishes)
    problem = Problem(columns, market, workload, wishes, _NOBODY)
    fleet = FleetState(links=measured)
    split = _best_split(problem, fleet)
    placement = _by_machine(place(split.allocation, _NOBODY, market), split)
    plan = partition(placement, split.allocation, market, workload, fleet)
    used = {slot.offer_id for slot in placement.slots}
    settled = used | {rejection.offer_id for rejection in unusable}
    reason = "idle: the plan is no faster with it"
    idle = (Rejection(offer_id=one.id, rule="idle", reason=reason) for one in screened.offers if one.id not in settled)
    return PlanResult(plan=plan, rejections=(*screened.rejections, *unusable, *idle))


def use_everything(market: Market, policy: Policy) -> Policy:
    """Return the wishes under which a fleet is split: all machines as fast as they can; applied twice as once."""
    largest = max((offer.stock or 1 for offer in market.offers), default=1)
    return Policy(
        name=policy.name,
        objective=Objective.MAX_THROUGHPUT,
        spot_trainer=True,
        survival_share=0.0,
        max_nodes_per_pool=largest,
        max_gang_nodes=max(largest, LARGEST_GANG),
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
    gang: tuple[SlotName, ...]
    """Machines that train, head first."""
    others: dict[OfferId, list[SlotName]]
    """The other machines of each offer, those with the best link to the head first."""


def _best_split(problem: Problem, fleet: FleetState) -> _Split:
    machines = _machines(problem)
    if not machines:
        raise InfeasibleError(
            "none of the fleet's machines can do this job in any role: too small a memory, or no bf16"
        )
    links = _fleet_graph(machines, problem, fleet)
    try:
        splits = [_try_cut(frozenset(machines), links, machines, problem)]
    except InfeasibleError as error:
        raise InfeasibleError(f"the fleet cannot do this job: {_missing(problem)}. {_MEND}") from error
    low, high, gamma = 0.0, 1.0, _flops_share(links, splits[0].gang)
    for _ in range(MAX_ROUNDS - 1):
        try:
            split = _try_cut(bisect(links, gamma), links, machines, problem)
        except InfeasibleError:  # a gang needs more than this side has
            low = gamma
        else:
            splits.append(split)
            low, high = (low, gamma) if split.trainer_is_faster else (gamma, high)
        gamma = (low + high) / 2
    fastest = max(split.allocation.samples_per_s for split in splits)
    equally_fast = [split for split in splits if split.allocation.samples_per_s >= fastest * (1 - MIP_GAP)]
    return _proven(max(equally_fast, key=lambda split: split.score), splits[0].allocation.proof)


def _missing(problem: Problem) -> str:
    """Say what keeps a fleet from working: a role that no machine can take, or for which none is left."""
    model, stock = problem.workload.model.name, problem.stock
    if not problem.gangs:
        return f"training is missing: no machine of it, nor all of one kind, has the memory for the state of {model}"
    if not problem.rollout:
        return f"rollout is missing: no machine of it has the memory for {model} and its samples"
    least = min(problem.gangs, key=lambda gang: (gang.nodes, gang.offer_id))
    if any(_leaves(gang, column, stock) for gang in problem.gangs for column in problem.rollout):
        return "it can train and it can roll out, but no split of it keeps every rule, such as how old samples may be"
    machines = f"{least.nodes} machine{'s' if least.nodes > 1 else ''}"
    return (
        f"rollout is missing: training {model} takes {machines} of {problem.offers[least.offer_id].instance_type} at "
        "least, a machine has one role, and none that could roll out is left"
    )


def _leaves(gang: TrainerColumn, column: RolloutColumn, stock: dict[OfferId, int]) -> bool:
    """Are machines for a rollout column left beside a gang?"""
    taken = gang.nodes if gang.offer_id == column.offer_id else 0
    return stock[column.offer_id] - taken >= column.nodes


def _proven(split: _Split, proof: Proof) -> _Split:
    """Return a split with what was proven of all: inside a cut the solver proves nothing of the others."""
    ceiling, reached = proof.upper_bound_samples_per_s, split.allocation.samples_per_s
    assert ceiling is not None
    known = proof.model_copy(update={"gap": max(0.0, 1.0 - reached / ceiling)})
    return replace(split, allocation=split.allocation.model_copy(update={"proof": known}))


def _flops_share(links: Links, names: tuple[SlotName, ...]) -> float:
    return float(sum(links.nodes[name]["flops"] for name in names) / sum(links.nodes[name]["flops"] for name in links))


def _machines(problem: Problem) -> dict[SlotName, Offer]:
    """Return every single machine of the fleet under a name of its own."""
    named = Counter(offer.instance_type for offer in problem.offers.values())
    return {
        SlotName(f"{offer.instance_type if named[offer.instance_type] == 1 else offer.id}#{number}"): offer
        for offer in problem.offers.values()
        for number in range(1, problem.stock[offer.id] + 1)
    }


def _by_machine(placement: Placement, split: _Split) -> Placement:
    """Return a placement whose slots are the fleet's own machines."""
    others = {name: iter(machines) for name, machines in split.others.items()}
    names = {
        slot.name: split.gang[slot.rank] if slot.trainer else next(others[slot.offer_id])
        for slot in sorted(placement.slots, key=lambda slot: (slot.unit, slot.rank))
    }
    slots = [
        slot.model_copy(update={"name": names[slot.name], "head": slot.head and names[slot.head]})
        for slot in placement.slots
    ]
    return Placement(slots=tuple(sorted(slots, key=lambda slot: slot.name)))


def _fleet_graph(machines: dict[SlotName, Offer], problem: Problem, fleet: FleetState) -> Links:
    links = link_graph(machines, problem.market, fleet)
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
    trainers = best_gang(
        links, tuple(name for name in machines if name in side and machines[name].id == gang.offer_id), gang.nodes
    )
    others: dict[OfferId, list[SlotName]] = {}
    rest = (name for name in machines if name not in trainers)
    for name in sorted(rest, key=lambda name: (-speed(links, trainers[0], name), name)):
        others.setdefault(machines[name].id, []).append(name)
    pace = allocation.samples_per_s
    made = sum(share.count * problem.rate(share.column, pace) for share in allocation.rollout)
    is_faster = gang.samples_per_s * problem.duty > made
    return _Split(allocation, eq3_score(links, frozenset(trainers)), is_faster, trainers, others)
