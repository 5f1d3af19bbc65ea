"""own_fleet: what `plan --fleet` says of the user's own machines: the gang's order, weight routes, and why not."""

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hexcloud.cli.planned import Planned
    from hexcloud.domain.plan import ExecutionPlan
    from hexcloud.planner.explain import WhyNot

_ROUTES_SHOWN = 12


def wires_view(plan: "ExecutionPlan") -> str:
    """Return the gang in rank order and the ways of new weights, slowest first."""
    routes = sorted(plan.routes, key=lambda route: (route.gb_per_s, route.target))
    rows = [f"  {route.source} -> {route.target}  {route.gb_per_s:g} GB/s" for route in routes[:_ROUTES_SHOWN]]
    more = [f"  and {len(routes) - _ROUTES_SHOWN} more (--json lists all)"] if len(routes) > _ROUTES_SHOWN else []
    return "\n".join([f"gang order  {', '.join(plan.ranks)}", "weights go", *rows, *more])


def wires_fields(plan: "ExecutionPlan") -> dict[str, object]:
    """Return the same for a machine, all of it."""
    return {"ranks": list(plan.ranks), "routes": [route.model_dump(mode="json") for route in plan.routes]}


def idle_of(planned: "Planned") -> dict[str, int]:
    """Return how many machines of each name have no part in the plan, though they could do the job."""
    result = planned.result
    unable = {one.offer_id for one in result.rejections if one.rule != "idle"}
    used = Counter(slot.offer_id for slot in result.plan.placement.slots)
    left = {
        one.instance_type: (one.stock or 0) - used[one.id]
        for one in planned.given.market.offers
        if one.id not in unable
    }
    return {name: count for name, count in left.items() if count}


def idle_view(planned: "Planned") -> str:
    """Return the same in a line; empty where all work."""
    idle = ", ".join(f"{count} of {name}" for name, count in idle_of(planned).items())
    return f"idle        {idle}: the plan is no faster with them\n" if idle else ""


def why_not_own(pattern: str, planned: "Planned") -> "WhyNot":
    """Return what became of the machines that match a name or glob. Prices keep none of them out."""
    from hexcloud.planner.explain import WhyNot, WhyNotKind, matching_offers

    matching = matching_offers(pattern, planned.given.market)
    slots = planned.result.plan.placement.slots
    reasons = {one.offer_id: one for one in planned.result.rejections}
    parts, rules = [], []
    for offer in matching:
        roles = [slot.role.value for slot in slots if slot.offer_id == offer.id]
        counts = ", ".join(f"{roles.count(role)} {role}" for role in dict.fromkeys(roles))
        refusal = reasons.get(offer.id)
        parts.append(f"{offer.instance_type}: {counts or (refusal.reason if refusal else 'idle')}")
        if idle := (offer.stock or 0) - len(roles) if roles else 0:
            parts[-1] += f", {idle} idle: the plan is no faster with them"
        rules += [refusal.rule] if refusal and not roles else []
    kind = WhyNotKind.REFUSED if len(rules) == len(matching) else WhyNotKind.CHOSEN
    found = WhyNot(pattern=pattern, matches=len(matching), kind=kind, reason="; ".join(parts))
    return found.model_copy(update={"offer_id": matching[0].id, "rule": rules[0] if rules else ""})


def require_prices(option: str, names: tuple[str, ...]) -> None:
    """Raise ConfigError where dollars are asked for and nobody said what machines cost."""
    from hexcloud.domain.errors import ConfigError

    if names:
        missing = ", ".join([*names[:3], *(["..."] if len(names) > 3 else [])])
        raise ConfigError(f"{option} draws dollars: give each machine its usd_per_hour; without one: {missing}")
