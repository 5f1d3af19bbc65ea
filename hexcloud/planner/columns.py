"""columns: every way to use one offer, with its rate, whatever throughput is asked for.

Rollout at every legal tensor-parallel degree and every halving of the largest batch, gangs of every number of nodes.
Nothing is chosen here: which of them count at a throughput is decided there (`useful`), or proofs would hold only for
what was chosen beforehand. One thing is: of the layouts of one gang only the fastest that fits stays. They cost the
same, take the same machines of every limit, and differ in nothing but their rate, of which no rule minds more: whatever
plan has a slower one is as cheap and as good with the fastest. A replica of several machines is one column of so many
(see `spans`): it makes what it makes whole, and nothing in parts. A model that fits no machine of an offer, nor as many
as may be one replica, is a Rejection with the memory it needs.
"""

import functools
import math
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from hexcloud.domain.calibration import Efficiency
from hexcloud.domain.formation import Formation
from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.market import LinkScope, Market, Rejection
from hexcloud.domain.offer import Offer, OfferId, Tenure
from hexcloud.domain.plan import Layout, Role, RolloutColumn, TrainerColumn
from hexcloud.domain.policy import Policy
from hexcloud.domain.training import LayoutKind
from hexcloud.domain.workload import Workload
from hexcloud.estimate import rollout, training
from hexcloud.estimate.memory import largest_batch, pass_sizes
from hexcloud.estimate.rollout import Replica
from hexcloud.estimate.training import Gang
from hexcloud.planner.distance import link_spec
from hexcloud.planner.kinds import Crew, Kinds, Ladder
from hexcloud.planner.spans import Spans, is_legal_across, legal_tp
from hexcloud.planner.unfit import has_disk, too_few, unfit

MAX_BATCH = 256
"""Running samples per replica beyond which throughput hardly grows: SGLang captures CUDA graphs up to here."""
LARGEST_GANG = 64
"""Machines."""
TCP_GB_PER_S = {"aws": 12.5, "gcp": 12.5}
"""Most between the machines of a replica, by cloud: SkyPilot is not asked for EFA or its like there, so NCCL speaks TCP
over one interface, which is of 100 Gbit/s where machines list thousands (general knowledge, not re-read)."""
_REMEMBERED_CREWS = 1_024
"""A whole market has some 130 kinds of machines that may train, for each job."""
_NOBODY = OfferId("")
_ANY = RolloutColumn(offer_id=_NOBODY, tp=1, replicas=1, batch=1, samples_per_s=1.0, generation_s=1.0)


def build_columns(
    offers: tuple[Offer, ...], market: Market, workload: Workload, policy: Policy
) -> tuple[Kinds, tuple[Rejection, ...]]:
    """Return the columns of the offers, and a Rejection for each offer that fits neither role.

    `offers` come from `screen`, so their `stock` says how many a plan may hold (None: the policy's depth).
    """
    shop = _Shop(offers, market, workload, policy)
    rejections: list[Rejection] = []
    kinds: dict[OfferId, tuple[int, int]] = {}
    for offer in sorted(offers, key=attrgetter("id")):
        ladder, crew = shop.kind(offer)
        least = [units[0].nodes for units in (shop.ladders[ladder], shop.crews[crew]) if units]
        if least and min(least) <= _depth(offer, policy):
            kinds[offer.id] = (ladder, crew)
        elif least:
            rejections.append(too_few(offer, min(least), _depth(offer, policy), policy, workload))
        else:
            rejections.append(unfit(offer, market, workload, shop.spans))
    return Kinds(tuple(shop.ladders), tuple(shop.crews), kinds), tuple(rejections)


def _depth(offer: Offer, policy: Policy) -> int:
    return policy.max_nodes_per_pool if offer.stock is None else offer.stock


class _Shop:
    """Ladders and crews of every kind of machine, each estimated once."""

    def __init__(self, offers: tuple[Offer, ...], market: Market, workload: Workload, policy: Policy) -> None:
        self.ladders: list[Ladder] = [()]
        """The first is that of machines which may not roll out."""
        self.crews: list[Crew] = [()]
        """The first is that of machines which may not train."""
        self._market, self._workload, self._policy = market, workload, policy
        self.spans = Spans(market, workload)
        self._kinds: dict[tuple[str, str, int, float, Tenure], tuple[int, int]] = {}
        self._ladder_numbers: dict[tuple[str, int, float], int] = {}
        self._crew_numbers: dict[tuple[str, int, float], int] = {}
        self._singles: dict[str, Replica] = {}
        self._speeds: dict[tuple[str, int, int], _Speed] = {}
        self._deepest = max((_depth(offer, policy) for offer in offers), default=0)

    def kind(self, offer: Offer) -> tuple[int, int]:
        """Return the numbers of an offer's ladder and crew."""
        machine = (offer.cloud, offer.gpu, offer.gpu_count, offer.network_gb_per_s, offer.tenure)
        known = self._kinds.get(machine)
        if known is None:
            known = self._kinds[machine] = (self._ladder(offer), self._crew(offer))
        return known

    def _ladder(self, offer: Offer) -> int:
        """Return the number of an offer's ladder; the network counts where a replica takes several machines."""
        if not has_disk(Role.ROLLOUT, offer.cloud, self._workload):
            return 0
        is_alone = max(self.spans.of(self._market.gpus[offer.gpu])) == 1
        kind = (offer.gpu, offer.gpu_count, 0.0 if is_alone else _between_gb_per_s(offer))
        if kind not in self._ladder_numbers:
            self._ladder_numbers[kind] = len(self.ladders)
            self.ladders.append(tuple(self._rungs(offer)))
        return self._ladder_numbers[kind]

    def _crew(self, offer: Offer) -> int:
        """Return the number of an offer's crew."""
        if offer.tenure is Tenure.SPOT and not self._policy.spot_trainer:
            return 0
        if not has_disk(Role.TRAINER, offer.cloud, self._workload):
            return 0
        kind = (offer.gpu, offer.gpu_count, offer.network_gb_per_s)
        if kind not in self._crew_numbers:
            self._crew_numbers[kind] = len(self.crews)
            single = self._single(offer.gpu)
            most = min(self._deepest, self._policy.max_gang_nodes, LARGEST_GANG)
            team = Team(single.gpu, single.efficiency, offer.gpu_count, offer.network_gb_per_s, most)
            self.crews.append(crew_of(team, self._workload))
        return self._crew_numbers[kind]

    def _rungs(self, offer: Offer) -> Iterator[RolloutColumn]:
        """Yield a column for every legal degree and every halving of its largest useful batch, smallest first."""
        admitted = (self._workload.eta + 1) * self._workload.samples_per_step
        single = self._single(offer.gpu)
        for nodes, tp in self._degrees(offer, single):
            replicas = offer.gpu_count * nodes // tp
            full = min(MAX_BATCH, largest_batch(self._workload, single.gpu, tp), admitted // replicas)
            for batch in _halvings(full):
                if nodes > 1:
                    yield across_column(offer, nodes, batch, self._market, self._workload).twin(offer_id=_NOBODY)
                    continue
                speed = self._speed(offer.gpu, tp, batch)
                yield _ANY.twin(
                    tp=tp,
                    replicas=replicas,
                    batch=batch,
                    samples_per_s=speed.samples_per_s * replicas,
                    generation_s=speed.generation_s,
                )

    def _degrees(self, offer: Offer, single: Replica) -> Iterator[tuple[int, int]]:
        """Yield machines and tensor-parallel degree of every legal replica."""
        model = self._workload.model
        for nodes in self.spans.of(single.gpu):
            if nodes == 1:
                yield from ((nodes, tp) for tp in legal_tp(offer.gpu_count, model))
            elif is_legal_across(nodes * offer.gpu_count, model):
                yield nodes, nodes * offer.gpu_count

    def _single(self, gpu: str) -> Replica:
        if gpu not in self._singles:
            efficiency = self._market.calibration.of(gpu, self._workload.model)
            self._singles[gpu] = Replica(self._market.gpus[gpu], efficiency, tp=1, batch=1)
        return self._singles[gpu]

    def _speed(self, gpu: str, tp: int, batch: int) -> "_Speed":
        """Return the speed of a replica: machines with more of a GPU hold more of the same."""
        key = (gpu, tp, batch)
        if key not in self._speeds:
            single = self._single(gpu)
            self._speeds[key] = _speed_of(Replica(single.gpu, single.efficiency, tp, batch), self._workload)
        return self._speeds[key]


class Team(NamedTuple):
    """Machines of a kind that may train, with all that the rates of their gangs depend on beside the job."""

    gpu: GpuSpec
    efficiency: Efficiency
    gpus: int
    """Of one machine."""
    network_gb_per_s: float
    most: int
    """Machines of the largest gang."""


@functools.lru_cache(maxsize=_REMEMBERED_CREWS)
def crew_of(team: Team, workload: Workload) -> Crew:
    """Return a gang of every number of nodes, in the fastest layout that fits.

    Thousands of layouts and passes are weighed for one job on a market, half the time of a plan, and neither prices nor
    stock change them: so they are remembered from plan to plan.
    """
    crew = []
    for nodes in range(1, team.most + 1):
        formations = _legal_formations(team.gpus, nodes, workload)
        found = [one for formation in formations if (one := _fastest(team, formation, workload)) is not None]
        if found:
            step_s, gang = min(found, key=lambda one: one[0])  # of equally fast ones the first
            crew.append(
                TrainerColumn(
                    offer_id=_NOBODY,
                    nodes=nodes,
                    layout=Layout(kind=gang.layout.value, ranks=gang.formation.size, pass_tokens=gang.pass_tokens),
                    samples_per_s=workload.samples_per_step / step_s,
                    step_s=step_s,
                )
            )
    return tuple(crew)


def _fastest(team: Team, formation: Formation, workload: Workload) -> tuple[float, Gang] | None:
    """Return step time and gang in its fastest passes, or None when none fits a rank, or there are not even samples for
    all."""
    if workload.samples_per_step < formation.data_ranks:
        return None
    gangs = (
        Gang(
            gpu=team.gpu,
            efficiency=team.efficiency,
            nodes=formation.machines,
            gpus_per_node=formation.ranks,
            network_gb_per_s=team.network_gb_per_s,
            pass_tokens=tokens,
            layout=formation.kind,
        )
        for tokens in pass_sizes(workload, team.gpu, formation)
    )
    timed = ((training.step_s(gang, workload), gang) for gang in gangs)
    return min(timed, key=lambda one: one[0], default=None)


class _Speed(NamedTuple):
    """Of one replica."""

    samples_per_s: float
    generation_s: float


def _speed_of(replica: Replica, workload: Workload) -> _Speed:
    return _Speed(rollout.samples_per_s(replica, workload), rollout.generation_p95_s(replica, workload))


def rollout_column(offer: Offer, replica: Replica, workload: Workload) -> RolloutColumn:
    """Return the column of an offer's machine that runs as many of these replicas as it can."""
    replicas, speed = offer.gpu_count // replica.tp, _speed_of(replica, workload)
    return RolloutColumn(
        offer_id=offer.id,
        tp=replica.tp,
        replicas=replicas,
        batch=replica.batch,
        samples_per_s=speed.samples_per_s * replicas,
        generation_s=speed.generation_s,
    )


def _between_gb_per_s(offer: Offer) -> float:
    """Return what a machine of a replica sends to the next, one way, 1e9 bytes/s."""
    return min(offer.network_gb_per_s, TCP_GB_PER_S.get(offer.cloud, math.inf))


def across_column(offer: Offer, nodes: int, batch: int, market: Market, workload: Workload) -> RolloutColumn:
    """Return the column of one replica on all GPUs of several machines of an offer, in one zone."""
    link = link_spec(LinkScope.ZONE, market.network)
    network_gb_per_s = _between_gb_per_s(offer)
    replica = Replica(
        gpu=market.gpus[offer.gpu],
        efficiency=market.calibration.of(offer.gpu, workload.model),
        tp=nodes * offer.gpu_count,
        batch=batch,
        machines=nodes,
        network_gb_per_s=min(network_gb_per_s, link.gb_per_s) if link else network_gb_per_s,
        latency_s=link.latency_ms / 1e3 if link else 0.0,
    )
    speed = _speed_of(replica, workload)
    return RolloutColumn(
        offer_id=offer.id,
        tp=replica.tp,
        replicas=1,
        batch=batch,
        samples_per_s=speed.samples_per_s,
        generation_s=speed.generation_s,
        nodes=nodes,
        spread_s=rollout.spread_s(replica, workload),
    )


def _legal_formations(machine_gpus: int, nodes: int, workload: Workload) -> Iterator[Formation]:
    """Yield a gang's formations that differ from each other: tensor parallelism, too, divides heads and machine.

    The user's number of ranks needs as many GPUs.
    """
    model, gpus = workload.model, workload.trainer_ranks or machine_gpus
    if gpus > machine_gpus:
        return
    for kind in workload.layouts:
        is_tp = kind is LayoutKind.TP
        if is_tp and any(count % gpus for count in (model.heads, model.kv_heads, model.intermediate)):
            continue
        is_flat = (nodes == 1 and kind is LayoutKind.HSDP) or (gpus == 1 and is_tp)
        if not (is_flat and LayoutKind.FSDP in workload.layouts):
            yield Formation(kind, nodes, gpus)


def _halvings(batch: int) -> list[int]:
    """Return a batch and its halvings down to 1, smallest first."""
    return [batch >> times for times in range(batch.bit_length())][::-1]
