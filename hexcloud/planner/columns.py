"""columns: every way to use one offer, with its rate: rollout at several batch sizes, gangs of 1, 2, 4 ... nodes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hexcloud.domain.market import LinkScope, Market, Rejection
from hexcloud.domain.offer import Offer, Tenure
from hexcloud.domain.plan import Columns, Layout, RolloutColumn, TrainerColumn
from hexcloud.domain.policy import Policy
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
MAX_TP = 8
MAX_MICRO_BATCH = 16


def build_columns(
    offers: tuple[Offer, ...], market: Market, workload: Workload, policy: Policy
) -> tuple[Columns, tuple[Rejection, ...]]:
    """Return rollout and trainer columns sorted by offer id, and a Rejection for each offer that fits neither role.

    `offers` come from `screen`, so their `stock` says how many a plan may hold (None: the policy's depth).
    """
    rollouts: list[RolloutColumn] = []
    gangs: list[TrainerColumn] = []
    rejections: list[Rejection] = []
    rollouts_of: dict[_Machine, list[RolloutColumn]] = {}
    for offer in sorted(offers, key=lambda one: one.id):
        kind = (offer.gpu, offer.gpu_count, offer.network_gb_per_s)
        if kind not in rollouts_of:
            rollouts_of[kind] = _rollout_columns(offer, market, workload, policy)
        own = [column.model_copy(update={"offer_id": offer.id}) for column in rollouts_of[kind]]
        trained = _trainer_columns(offer, market, workload, policy)
        rollouts += own
        gangs += trained
        if not own and not trained:
            hbm_gib = market.gpus[offer.gpu].hbm_gib
            reason = f"neither a rollout replica nor a gang fits {hbm_gib:g} GiB GPUs with {workload.model.name}"
            rejections.append(Rejection(offer_id=offer.id, rule="memory", reason=reason))
    return Columns(rollout=tuple(rollouts), trainer=tuple(gangs)), tuple(rejections)


_Machine = tuple[str, int, float]
"""GPU, how many, and network: offers of equal machines get equal rollout columns, estimated once."""


def _rollout_columns(offer: Offer, market: Market, workload: Workload, policy: Policy) -> list[RolloutColumn]:
    """Columns at the degree that makes most samples per instance, and the best that is quick enough for the target.

    Ties go to the smaller degree. Slow GPUs need a small batch, or more of them per replica, to finish in time.
    """
    full = [_rollout_column(offer, replica, workload) for replica in _full_replicas(offer, market, workload)]
    if not full:
        return []
    best = max(full, key=lambda column: (column.samples_per_s, -column.tp))
    replica = replace(_single(offer, market, workload), tp=best.tp)
    batches = sorted({max(1, best.batch // divisor) for divisor in BATCH_DIVISORS})
    columns = [_rollout_column(offer, replace(replica, batch=batch), workload) for batch in batches]
    for travel_s in _travels_s(offer, market, workload):
        reach = Reach(workload, policy.target_samples_per_s, travel_s)
        quick = _quick_column(offer, market, reach)
        in_time = [column.samples_per_s for column in columns if reach.has(column)]
        if quick is not None and quick.samples_per_s > max(in_time, default=0.0):
            columns.append(quick)
    return sorted(columns, key=lambda column: (column.tp, column.batch))


@dataclass(frozen=True)
class Reach:
    """Which columns make samples that are young enough at a target, with the weights `travel_s` away."""

    workload: Workload
    samples_per_s: float | None
    """None: unknown, so everything is."""
    travel_s: float

    def has(self, column: RolloutColumn) -> bool:
        """Is the p95 sample of a column young enough?"""
        if self.samples_per_s is None:
            return True
        step_s = self.workload.samples_per_step / self.samples_per_s
        return self.travel_s <= farthest_s(self.workload, column.tp, column.generation_s, step_s)


def _travels_s(offer: Offer, market: Market, workload: Workload) -> list[float]:
    """Seconds a version takes to an offer from a trainer at each distance."""
    links = {link.scope: link.gb_per_s for link in market.network.links}
    own = offer.network_gb_per_s
    speeds = {min(own, links.get(scope, own)) for scope in LinkScope}
    return [transfer_s(full_bytes(workload.model), speed) for speed in sorted(speeds)]


def _full_replicas(offer: Offer, market: Market, workload: Workload) -> list[Replica]:
    """The largest useful replica at each legal degree."""
    replicas = []
    for tp in _legal_tp(offer, workload):
        admitted = (workload.eta + 1) * workload.samples_per_step // (offer.gpu_count // tp)
        fitting = min(MAX_BATCH, largest_batch(workload, market.gpus[offer.gpu], tp), admitted)
        if fitting >= 1:
            replicas.append(replace(_single(offer, market, workload), tp=tp, batch=fitting))
    return replicas


def _single(offer: Offer, market: Market, workload: Workload) -> Replica:
    """One GPU of the offer with one running sample: what other replicas are made from."""
    return Replica(market.gpus[offer.gpu], market.calibration.of(offer.gpu, workload.model), tp=1, batch=1)


def _quick_column(offer: Offer, market: Market, reach: Reach) -> RolloutColumn | None:
    """The fastest column, over all degrees and halvings of the batch, whose samples are young enough at the target."""
    if reach.samples_per_s is None:
        return None
    found: list[RolloutColumn] = []
    for replica in _full_replicas(offer, market, reach.workload):
        for batch in _halvings(replica.batch):
            column = _rollout_column(offer, replace(replica, batch=batch), reach.workload)
            if reach.has(column):
                found.append(column)
                break  # smaller batches make less
    return max(found, key=lambda column: (column.samples_per_s, -column.tp), default=None)


def _halvings(batch: int) -> Iterator[int]:
    while batch >= 1:
        yield batch
        batch //= 2


def _rollout_column(offer: Offer, replica: Replica, workload: Workload) -> RolloutColumn:
    replicas = offer.gpu_count // replica.tp
    return RolloutColumn(
        offer_id=offer.id,
        tp=replica.tp,
        replicas=replicas,
        batch=replica.batch,
        samples_per_s=rollout.samples_per_s(replica, workload) * replicas,
        generation_s=rollout.generation_p95_s(replica, workload),
    )


def _legal_tp(offer: Offer, workload: Workload) -> list[int]:
    """Degrees that divide the attention heads and the machine's GPUs, inside one machine."""
    largest = min(MAX_TP, offer.gpu_count)
    return [tp for tp in range(1, largest + 1) if workload.model.heads % tp == 0 and offer.gpu_count % tp == 0]


def _trainer_columns(offer: Offer, market: Market, workload: Workload, policy: Policy) -> list[TrainerColumn]:
    if offer.tenure is Tenure.SPOT and not policy.spot_trainer:
        return []
    depth = policy.max_nodes_per_pool if offer.stock is None else offer.stock
    columns = []
    nodes = 1
    while nodes <= min(policy.max_gang_nodes, depth):
        column = _trainer_column(offer, nodes, market, workload)
        if column is not None:
            columns.append(column)
        nodes *= 2
    return columns


def _trainer_column(offer: Offer, nodes: int, market: Market, workload: Workload) -> TrainerColumn | None:
    """The gang with the largest micro-batch that fits, or None when not one sample fits a rank."""
    gpu = market.gpus[offer.gpu]
    ranks = nodes * offer.gpu_count
    share = workload.samples_per_step // ranks
    if share < 1:
        return None
    fitting = largest_micro_batch(workload, gpu, ranks, min(MAX_MICRO_BATCH, share))
    if fitting < 1:
        return None
    gang = Gang(
        gpu=gpu,
        efficiency=market.calibration.of(offer.gpu, workload.model),
        nodes=nodes,
        gpus_per_node=offer.gpu_count,
        network_gb_per_s=offer.network_gb_per_s,
        micro_batch=fitting,
    )
    step_s = training.step_s(gang, workload)
    return TrainerColumn(
        offer_id=offer.id,
        nodes=nodes,
        layout=Layout(ranks=ranks, micro_batch=fitting),
        samples_per_s=workload.samples_per_step / step_s,
        step_s=step_s,
    )
