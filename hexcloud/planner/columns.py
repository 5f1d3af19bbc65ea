"""columns: every way to use one offer, with its rate: rollout at three batch sizes, gangs of 1, 2, 4 ... nodes."""

from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.market import Market, Rejection
from hexcloud.domain.offer import Offer, Tenure
from hexcloud.domain.plan import Columns, Layout, RolloutColumn, TrainerColumn
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.estimate import rollout, training
from hexcloud.estimate.memory import largest_batch, largest_micro_batch
from hexcloud.estimate.rollout import Replica
from hexcloud.estimate.training import Gang

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
    for offer in sorted(offers, key=lambda one: one.id):
        gpu = market.gpus[offer.gpu]
        own = _rollout_columns(offer, gpu, market, workload)
        trained = _trainer_columns(offer, market, workload, policy)
        rollouts += own
        gangs += trained
        if not own and not trained:
            reason = f"neither a rollout replica nor a gang fits {gpu.hbm_gib:g} GiB GPUs with {workload.model.name}"
            rejections.append(Rejection(offer_id=offer.id, rule="memory", reason=reason))
    return Columns(rollout=tuple(rollouts), trainer=tuple(gangs)), tuple(rejections)


def _rollout_columns(offer: Offer, gpu: GpuSpec, market: Market, workload: Workload) -> list[RolloutColumn]:
    """Columns at the tensor-parallel degree that makes most samples per instance; ties go to the smaller degree."""
    efficiency = market.calibration.of(offer.gpu)
    best: tuple[float, Replica] | None = None
    for tp in _legal_tp(offer, workload):
        admitted = (workload.eta + 1) * workload.samples_per_step // (offer.gpu_count // tp)
        fitting = min(MAX_BATCH, largest_batch(workload, gpu, tp), admitted)
        if fitting < 1:
            continue
        replica = Replica(gpu=gpu, efficiency=efficiency, tp=tp, batch=fitting)
        rate = rollout.samples_per_s(replica, workload) * (offer.gpu_count // tp)
        if best is None or rate > best[0]:
            best = (rate, replica)
    if best is None:
        return []
    batches = sorted({max(1, best[1].batch // divisor) for divisor in BATCH_DIVISORS})
    return [_rollout_column(offer, Replica(gpu, efficiency, best[1].tp, batch), workload) for batch in batches]


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
        efficiency=market.calibration.of(offer.gpu),
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
