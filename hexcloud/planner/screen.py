"""screen: which offers this job and these wishes can use at all. A refusal is a value with its reason."""

from fnmatch import fnmatchcase
from operator import attrgetter

from hexcloud.domain.fleet import FleetState
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.market import Market, Rejection
from hexcloud.domain.offer import Offer, OfferId, Tenure
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.estimate.memory import GIB, usable_bytes
from hexcloud.planner.spans import Spans
from hexcloud.planner.stock import Stock


class Screened(Frozen):
    """Offers worth a column, and the others with the reason. Offers carry the stock a plan may use."""

    offers: tuple[Offer, ...]
    rejections: tuple[Rejection, ...]


def screen(market: Market, workload: Workload, policy: Policy, fleet: FleetState) -> Screened:
    """Return the offers that pass every rule, each with its effective stock, and a Rejection for every other."""
    stock, spans = Stock(market, policy, fleet), Spans(market, workload)
    wishes = tuple((rule, patterns) for rule, patterns in _wishes(policy) if patterns)
    takes_spot = policy.max_spot_share > 0 or policy.spot_trainer
    is_choosy = bool(wishes) or not takes_spot
    unable: dict[tuple[str, int], _Refusal | None] = {}
    kept: list[Offer] = []
    rejections: list[Rejection] = []
    known: dict[_Refusal, Rejection] = {}
    for offer in sorted(market.offers, key=attrgetter("id")):
        kind = (offer.gpu, offer.gpu_count)
        if kind not in unable:
            unable[kind] = _unable(*kind, market, workload, spans)
        refusal, most = (_unwanted(offer, wishes, takes_spot=takes_spot) if is_choosy else None) or unable[kind], 0
        if refusal is None and (most := stock.most(offer)) == 0:
            refusal = stock.refusal(offer)
        if refusal:
            rejections.append(_rejection(refusal, known).twin(offer_id=offer.id))
        else:
            kept.append(offer.twin(stock=most))
    return Screened(offers=tuple(kept), rejections=tuple(rejections))


_Refusal = tuple[str, str]
_Wishes = tuple[tuple[str, tuple[str, ...]], ...]
"""Facts of an offer that the policy restricts, and the patterns they may match."""


def _rejection(refusal: _Refusal, known: dict[_Refusal, Rejection]) -> Rejection:
    """Return a Rejection with a reason: thousands of offers share a few."""
    if refusal not in known:
        known[refusal] = Rejection(offer_id=OfferId(""), rule=refusal[0], reason=refusal[1])
    return known[refusal]


def _wishes(policy: Policy) -> _Wishes:
    return (("cloud", policy.clouds), ("region", policy.regions), ("gpu", policy.gpus))


def _unwanted(offer: Offer, wishes: _Wishes, *, takes_spot: bool) -> _Refusal | None:
    """What the policy does not want."""
    for rule, patterns in wishes:
        value = {"cloud": offer.cloud, "region": offer.region, "gpu": offer.gpu}[rule]
        if not any(fnmatchcase(value, pattern) for pattern in patterns):
            return rule, f"{rule} {value} is not among {', '.join(patterns)}"
    if offer.tenure is Tenure.SPOT and not takes_spot:
        return "tenure", "the policy allows no spot machine in any role"
    return None


def _unable(name: str, gpu_count: int, market: Market, workload: Workload, spans: Spans) -> _Refusal | None:
    """What the machine cannot do."""
    gpu = market.gpus.get(name)
    if gpu is None:
        return "gpu_facts", f"no facts about GPU {name} in the catalog"
    if not gpu.has_bf16:
        return "bf16", f"{gpu.name} has no bf16"
    most = max(spans.of(gpu))
    needed, there = workload.model.weight_bytes, usable_bytes(gpu) * gpu_count * most
    if needed > there:
        whose = "its GPUs" if most == 1 else f"the GPUs of {most} machines"
        reason = f"weights take {needed / GIB:.1f} GiB, {whose} hold {there / GIB:.1f} GiB in all"
        return "memory", f"{reason}{spans.mend(gpu, gpu_count)}"
    return None
