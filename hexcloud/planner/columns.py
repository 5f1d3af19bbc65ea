"""columns: every way to use one offer, with its rate: rollout at several batch sizes, gangs of 1, 2, 3, 4, 6 ... nodes.

A replica stays inside one machine: the engine is started per machine, and slots are placed, drained and lost one by
one. A model that fits no machine of an offer is a Rejection with the memory it needs (ADR 0006).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from hexcloud.domain.market import LinkScope, Market, Rejection
from hexcloud.domain.offer import Offer, Tenure
from hexcloud.domain.plan import Columns, Layout, RolloutColumn, TrainerColumn, TrainerLayout
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.workload import Workload
from hexcloud.estimate import rollout, training
from hexcloud.estimate.freshness import farthest_s
from hexcloud.estimate.memory import largest_batch, largest_micro_batch
from hexcloud.estimate.rollout import Replica
from hexcloud.estimate.training import Gang
from hexcloud.estimate.transfer import full_bytes, transfer_s

MAX_BATCH = 256
"""Running samples per replica beyond which throughput hardly grows: SGLang captures CUDA graphs up to here."""
BATCH_DIVISORS = (1, 2, 4)
"""Smaller batches make fewer samples but finish each sooner, which a tight staleness bound may need."""
_SOONER = 0.75
MAX_TP = 8
MAX_MICRO_BATCH = 16
GANG_NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Sizes of gangs that are tried: steps of a third to a half, so that 64 nodes take 12 tries."""
LAYOUTS = (TrainerLayout(),)
"""What the trainer of this package declares."""


def build_columns(
    offers: tuple[Offer, ...], market: Market, workload: Workload, policy: Policy
) -> tuple[Columns, tuple[Rejection, ...]]:
    """Return rollout and trainer columns sorted by offer id, and a Rejection for each offer that fits neither role.

    `offers` come from `screen`, so their `stock` says how many a plan may hold (None: the policy's depth).
    """
    rollouts: list[RolloutColumn] = []
    gangs: list[TrainerColumn] = []
    rejections: list[Rejection] = []
    kinds: dict[_Machine, _Kind] = {}
    ladders: dict[tuple[str, int], _Ladder] = {}
    speeds: _Speeds = {}
    for offer in sorted(offers, key=lambda one: one.id):
        machine = (offer.gpu, offer.gpu_count, offer.network_gb_per_s)
        if machine not in kinds:
            ladder = ladders.get(machine[:2]) or _Ladder(offer, market, workload, speeds)
            kinds[machine] = _kind(offer, ladders.setdefault(machine[:2], ladder), policy)
        own = [shape.twin(offer_id=offer.id) for shape in kinds[machine].rollouts]
        trained = _own_gangs(offer, kinds[machine].gangs, policy)
        rollouts += own
        gangs += trained
        if not own and not trained:
            hbm_gib = market.gpus[offer.gpu].hbm_gib
            reason = f"neither a rollout replica nor a gang fits {hbm_gib:g} GiB GPUs with {workload.model.name}"
            rejections.append(Rejection(offer_id=offer.id, rule="memory", reason=reason))
    return Columns(rollout=tuple(rollouts), trainer=tuple(gangs)), tuple(rejections)


_Machine = tuple[str, int, float]
"""GPU, how many, and network: offers of equal machines get equal columns, estimated once."""


class _Kind(NamedTuple):
    """Columns of one kind of machine; the offer's id in them is that of the first."""

    rollouts: list[RolloutColumn]
    gangs: list[TrainerColumn]
    """Smallest first."""


def _kind(offer: Offer, ladder: "_Ladder", policy: Policy) -> _Kind:
    gangs = (
        _trainer_column(_Gang(offer, nodes, layout), ladder)
        for nodes in GANG_NODES
        for layout in LAYOUTS
        if nodes <= min(policy.max_gang_nodes, layout.most_nodes)
    )
    return _Kind(_rollout_columns(offer, ladder, policy), [gang for gang in gangs if gang is not None])


def _own_gangs(offer: Offer, gangs: list[TrainerColumn], policy: Policy) -> list[TrainerColumn]:
    if offer.tenure is Tenure.SPOT and not policy.spot_trainer:
        return []
    depth = policy.max_nodes_per_pool if offer.stock is None else offer.stock
    return [gang.twin(offer_id=offer.id) for gang in gangs if gang.nodes <= depth]


class _Speed(NamedTuple):
    """Of one replica."""

    samples_per_s: float
    generation_s: float


_Speeds = dict[tuple[str, int, int], _Speed]
"""By GPU, degree and batch: machines with more of a GPU hold more of the same replicas."""


class _Ladder:
    """Rollout columns of one kind of machine at every legal degree and halving of its largest batch, each made once.

    The network counts in none of them, so machines that differ in that alone share a ladder.
    """

    def __init__(self, offer: Offer, market: Market, workload: Workload, speeds: _Speeds) -> None:
        self.offer = offer
        self.market = market
        self.workload = workload
        self.single = Replica(market.gpus[offer.gpu], market.calibration.of(offer.gpu, workload.model), tp=1, batch=1)
        self.full: list[Replica] = _full_replicas(offer, self.single, workload)
        self._known: dict[tuple[int, int], RolloutColumn] = {}
        self._speeds = speeds

    def column(self, tp: int, batch: int) -> RolloutColumn:
        """Return the column of a degree and batch."""
        known = self._known.get((tp, batch))
        if known is None:
            replica = Replica(self.single.gpu, self.single.efficiency, tp, batch)
            known = self._known[tp, batch] = _machine_column(self.offer, replica, self._speed(replica))
        return known

    def _speed(self, replica: Replica) -> _Speed:
        key = (self.offer.gpu, replica.tp, replica.batch)
        known = self._speeds.get(key)
        if known is None:
            known = self._speeds[key] = _speed_of(replica, self.workload)
        return known


def _rollout_columns(offer: Offer, ladder: _Ladder, policy: Policy) -> list[RolloutColumn]:
    """Columns at the degree that makes most samples per instance, and those that are quick enough for what is asked.

    Ties go to the smaller degree. Slow GPUs need a small batch, or more of them per replica, to finish in time.
    """
    full = [ladder.column(replica.tp, replica.batch) for replica in ladder.full]
    if not full:
        return []
    best = max(full, key=lambda column: (column.samples_per_s, -column.tp))
    batches = sorted({max(1, best.batch // divisor) for divisor in BATCH_DIVISORS})
    columns = [ladder.column(best.tp, batch) for batch in batches]
    target = None if policy.objective is not Objective.MIN_COST else policy.least_samples_per_s
    if target is None:
        return _sorted((*columns, *_quicker(ladder, columns)))
    reaches = [Reach(ladder.workload, target, travel_s) for travel_s in _travels_s(offer, ladder)]
    return _sorted((*columns, *_quick(ladder, columns, reaches)))


def _sorted(columns: Iterable[RolloutColumn]) -> list[RolloutColumn]:
    return sorted(columns, key=lambda column: (column.tp, column.batch))


def _quick(ladder: _Ladder, usual: list[RolloutColumn], reaches: list["Reach"]) -> list[RolloutColumn]:
    """The best columns that are quick enough for a throughput, from each distance of the trainer."""
    found: list[RolloutColumn] = []
    for reach in reaches:
        quick = _quick_column(ladder, reach)
        in_time = [column.samples_per_s for column in (*usual, *found) if reach.has(column)]
        if quick is not None and quick.samples_per_s > max(in_time, default=0.0):
            found.append(quick)
    return found


def _quicker(ladder: _Ladder, usual: list[RolloutColumn]) -> list[RolloutColumn]:
    """Columns that make less than the usual ones but sooner, each at least a quarter sooner than the last.

    Where the throughput is not known beforehand, neither is how quick a column must be.
    """
    found: list[RolloutColumn] = []
    soonest = min(_ready_s(ladder, column) for column in usual)
    every = [ladder.column(replica.tp, batch) for replica in ladder.full for batch in _halvings(replica.batch)]
    for column in sorted(every, key=lambda one: (-one.samples_per_s, one.tp)):
        if _ready_s(ladder, column) <= soonest * _SOONER:
            found.append(column)
            soonest = _ready_s(ladder, column)
    return found


def _ready_s(ladder: _Ladder, column: RolloutColumn) -> float:
    """Seconds from new weights on the machine to a finished sample."""
    return column.generation_s + rollout.reload_s(ladder.workload, column.tp)


@dataclass(frozen=True)
class Reach:
    """Which columns make samples that are young enough at a target, with the weights `travel_s` away."""

    workload: Workload
    samples_per_s: float
    travel_s: float

    def has(self, column: RolloutColumn) -> bool:
        """Is the p95 sample of a column young enough?"""
        step_s = self.workload.samples_per_step / self.samples_per_s
        return self.travel_s <= farthest_s(self.workload, column.tp, column.generation_s, step_s)


def _travels_s(offer: Offer, ladder: _Ladder) -> list[float]:
    """Seconds a version takes to an offer from a trainer at each distance."""
    links = {link.scope: link.gb_per_s for link in ladder.market.network.links}
    own = offer.network_gb_per_s
    speeds = {min(own, links.get(scope, own)) for scope in LinkScope}
    return [transfer_s(full_bytes(ladder.workload.model), speed) for speed in sorted(speeds)]


def _full_replicas(offer: Offer, single: Replica, workload: Workload) -> list[Replica]:
    """The largest useful replica at each legal degree."""
    replicas = []
    for tp in _legal_tp(offer, workload):
        admitted = (workload.eta + 1) * workload.samples_per_step // (offer.gpu_count // tp)
        fitting = min(MAX_BATCH, largest_batch(workload, single.gpu, tp), admitted)
        if fitting >= 1:
            replicas.append(replace(single, tp=tp, batch=fitting))
    return replicas


def _quick_column(ladder: _Ladder, reach: Reach) -> RolloutColumn | None:
    """The fastest column, over all degrees and halvings of the batch, whose samples are young enough at the target."""
    found: list[RolloutColumn] = []
    for replica in ladder.full:
        columns = (ladder.column(replica.tp, batch) for batch in _halvings(replica.batch))
        first = next((column for column in columns if reach.has(column)), None)  # smaller batches make less
        found += [] if first is None else [first]
    return max(found, key=lambda column: (column.samples_per_s, -column.tp), default=None)


def _halvings(batch: int) -> Iterator[int]:
    while batch >= 1:
        yield batch
        batch //= 2


def rollout_column(offer: Offer, replica: Replica, workload: Workload) -> RolloutColumn:
    """Return the column of an offer's machine that runs as many of these replicas as it can."""
    return _machine_column(offer, replica, _speed_of(replica, workload))


def _speed_of(replica: Replica, workload: Workload) -> _Speed:
    return _Speed(rollout.samples_per_s(replica, workload), rollout.generation_p95_s(replica, workload))


def _machine_column(offer: Offer, replica: Replica, speed: _Speed) -> RolloutColumn:
    replicas = offer.gpu_count // replica.tp
    return RolloutColumn(
        offer_id=offer.id,
        tp=replica.tp,
        replicas=replicas,
        batch=replica.batch,
        samples_per_s=speed.samples_per_s * replicas,
        generation_s=speed.generation_s,
    )


def _legal_tp(offer: Offer, workload: Workload) -> list[int]:
    """Degrees that divide the attention heads and the machine's GPUs, inside one machine."""
    largest = min(MAX_TP, offer.gpu_count)
    return [tp for tp in range(1, largest + 1) if workload.model.heads % tp == 0 and offer.gpu_count % tp == 0]


class _Gang(NamedTuple):
    """A gang to be tried: machines of one offer in a layout that the trainer declares."""

    offer: Offer
    nodes: int
    layout: TrainerLayout


def _trainer_column(wanted: _Gang, ladder: _Ladder) -> TrainerColumn | None:
    """The gang with the largest micro-batch that fits, or None when not one sample fits a rank."""
    offer, nodes, workload = wanted.offer, wanted.nodes, ladder.workload
    gpu = ladder.single.gpu
    ranks = nodes * offer.gpu_count
    share = workload.samples_per_step // ranks
    if share < 1:
        return None
    fitting = largest_micro_batch(workload, gpu, ranks, min(MAX_MICRO_BATCH, share))
    if fitting < 1:
        return None
    gang = Gang(
        gpu=gpu,
        efficiency=ladder.single.efficiency,
        nodes=nodes,
        gpus_per_node=offer.gpu_count,
        network_gb_per_s=offer.network_gb_per_s,
        micro_batch=fitting,
    )
    step_s = training.step_s(gang, workload)
    return TrainerColumn(
        offer_id=offer.id,
        nodes=nodes,
        layout=Layout(kind=wanted.layout.kind, ranks=ranks, micro_batch=fitting),
        samples_per_s=workload.samples_per_step / step_s,
        step_s=step_s,
    )
