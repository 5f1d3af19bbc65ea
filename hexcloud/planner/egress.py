"""egress: what sending every new version of the weights to the rollout side costs, as fixed charges on where it is."""

from hexcloud.domain.offer import Offer
from hexcloud.planner.milp import Variable
from hexcloud.planner.problem import Region
from hexcloud.planner.rules import UNNAMED, RuleModel, ones

Members = list[tuple[Offer, Variable, float]]
"""Machines of one zone: offer, variable, and the most that a plan need hold."""
Zones = dict[str, Members]


def add_egress(rules: RuleModel) -> None:
    """Charge one copy of each version per remote region, and one more per further zone inside a region.

    Machines of one zone pass a version on among themselves, which no cloud bills.
    """
    source = rules.choice.source
    if source is None:
        return
    regions: dict[Region, Zones] = {}
    for (column, machines), most in zip(rules.rollout, rules.most, strict=True):
        offer = rules.offer(column)
        zones = regions.setdefault((offer.cloud, offer.region), {})
        zones.setdefault(offer.zone or "", []).append((offer, machines, most))
    for region, zones in sorted(regions.items()):
        if region == (source.cloud, source.region):
            _add_home(rules, source, zones)
        else:
            _add_remote(rules, source, zones)


def _add_home(rules: RuleModel, source: Offer, zones: Zones) -> None:
    """Charge each zone of the trainer's region but its own."""
    usd_per_hour = rules.problem.zone_egress_usd_per_hour(source, rules.choice.samples_per_s)
    for zone, members in sorted(zones.items()):
        if usd_per_hour > 0 and zone != (source.zone or ""):
            rules.charge_by_pace(rules.egress, _used(rules, members), usd_per_hour)


def _add_remote(rules: RuleModel, source: Offer, zones: Zones) -> None:
    """Charge the way into a region once, and the way between its zones for each zone but the first."""
    target = rules.choice.samples_per_s
    offer = next(iter(zones.values()))[0][0]
    into_region = rules.problem.egress_usd_per_hour(source, offer, target)
    between_zones = rules.problem.zone_egress_usd_per_hour(offer, target) if len(zones) > 1 else 0.0
    if into_region == 0 and between_zones == 0:
        return
    flags = [_used(rules, members) for _, members in sorted(zones.items())]
    for flag in flags:
        rules.charge_by_pace(rules.egress, flag, between_zones)
    region = rules.model.add_variable(upper=1.0, integer=True)
    rules.charge_by_pace(rules.egress, region, into_region - between_zones)
    for flag in flags:
        rules.model.add_row(UNNAMED, [(flag, 1.0), (region, -1.0)], upper=0.0)
    # Where the way in is cheaper than the way between zones, only a used zone may claim the difference.
    rules.model.add_row(UNNAMED, [*ones(flags), (region, -1.0)], lower=0.0)


def _used(rules: RuleModel, members: Members) -> Variable:
    """Return a variable that is 1 when any of these machines is used; a row per offer keeps the relaxation tight."""
    flag = rules.model.add_variable(upper=1.0, integer=True)
    for _, machines, most in members:
        rules.model.add_row(UNNAMED, [(machines, 1.0), (flag, -most)], upper=0.0)
    return flag
