"""unfit: why an offer that could be rented has no place in any plan, and what would give it one."""

from hexcloud.domain.market import Market, Rejection
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import Role
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.estimate.disk import disk_gib, most_disk_gib
from hexcloud.planner.spans import Spans, is_legal_across


def has_disk(role: Role, cloud: str, workload: Workload) -> bool:
    """Does a cloud give a machine a disk for all that this role keeps on it?"""
    most = most_disk_gib(cloud)
    return most is None or disk_gib(role, workload) <= most


def too_few(offer: Offer, least: int, depth: int, policy: Policy, workload: Workload) -> Rejection:
    """Return why an offer of which `depth` machines may be held is of no use, as `least` have to come together."""
    takes = f"{workload.model.name} takes at least {least} machines"
    if depth == policy.max_nodes_per_pool:
        reason = f"{takes}, and the policy allows {depth} of an offer (max_nodes_per_pool)"
        return Rejection(offer_id=offer.id, rule="stock", reason=reason)
    if offer.proven or depth != 1:
        return Rejection(offer_id=offer.id, rule="stock", reason=f"{takes}, {depth} can be had")
    mend = "it is believed once a machine of it has worked for you, such as in a run with a smaller model"
    reason = f"{takes} together, and of capacity that may not exist one is tried at most; {mend}"
    return Rejection(offer_id=offer.id, rule="stock", reason=reason)


def unfit(offer: Offer, market: Market, workload: Workload, spans: Spans) -> Rejection:
    """Return why no replica and no gang can be made of an offer, however many machines there are."""
    gpu, model = market.gpus[offer.gpu], workload.model
    lacking = [role for role in Role if not has_disk(role, offer.cloud, workload)]
    if lacking:
        needs = " and ".join(f"a {role.value} node keeps {disk_gib(role, workload)} GiB" for role in lacking)
        other = "" if len(lacking) == len(Role) else "; what it has room for does not fit its GPUs"
        reason = f"{needs} on its disk, and {offer.cloud} gives a machine {most_disk_gib(offer.cloud)} at most{other}"
        return Rejection(offer_id=offer.id, rule="disk", reason=reason)
    wide = [nodes * offer.gpu_count for nodes in spans.of(gpu) if nodes > 1]
    if wide and not any(is_legal_across(tp, model) for tp in wide):
        counts = " or ".join(str(tp) for tp in wide)
        shapes = f"{model.heads} heads, {model.kv_heads} key-value heads, {model.intermediate} wide"
        reason = f"{counts} GPUs of several machines cannot share a layer of {model.name} ({shapes})"
        return Rejection(offer_id=offer.id, rule="memory", reason=f"{reason}, and no machine holds it alone")
    reason = f"neither a rollout replica nor a gang fits {gpu.hbm_gib:g} GiB GPUs with {model.name}"
    return Rejection(offer_id=offer.id, rule="memory", reason=reason)
