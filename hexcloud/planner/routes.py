"""routes: the way of every new version of the weights from the trainer's head to each rollout slot.

One copy crosses to a region and one to each further zone of it, as the MILP prices them (`egress`); inside a zone
machines pass a copy on, which no cloud bills. A source serves all its targets at once, so many machines have it sooner
through a tree than from one source: the fan-out is chosen by when the last machine has its copy.
"""

from dataclasses import dataclass

from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import SlotName, WeightRoute
from hexcloud.planner.forecast import weight_sync_s
from hexcloud.planner.links import Links, speed

_FAN_OUTS = (4, 3, 2)
"""Machines that one machine serves, when not all; with equal links three is best for many machines."""


def weight_routes(
    links: Links, head: SlotName, rollout: tuple[SlotName, ...], machines: dict[SlotName, Offer]
) -> tuple[WeightRoute, ...]:
    """Return one route per rollout slot, by target. `machines` says where the head and the rollout slots stand."""
    regions: dict[tuple[str, str], dict[str, list[SlotName]]] = {}
    for name in rollout:
        offer = machines[name]
        regions.setdefault((offer.cloud, offer.region), {}).setdefault(offer.zone or "", []).append(name)
    router = _Router(links, machines)
    routes = [route for _, zones in sorted(regions.items()) for route in router.region(head, zones)]
    return tuple(sorted(routes, key=lambda route: route.target))


@dataclass(frozen=True)
class _Router:
    links: Links
    machines: dict[SlotName, Offer]

    def region(self, head: SlotName, zones: dict[str, list[SlotName]]) -> list[WeightRoute]:
        """Route the slots of one region: from the head where it stands there, else from the slot it reaches best."""
        routes: list[WeightRoute] = []
        names = [name for members in zones.values() for name in members]
        hub = head if self._is_home(head, names[0]) else self._entry(head, names)
        if hub != head:
            routes.append(self._route(head, hub))
        for zone, members in sorted(zones.items()):
            root = hub if zone == (self.machines[hub].zone or "") else self._entry(hub, members)
            if root != hub:
                routes.append(self._route(hub, root))
            routes += self._tree(root, [name for name in members if name != root])
        return routes

    def _is_home(self, one: SlotName, other: SlotName) -> bool:
        here, there = self.machines[one], self.machines[other]
        return (here.cloud, here.region) == (there.cloud, there.region)

    def _entry(self, source: SlotName, names: list[SlotName]) -> SlotName:
        """Return the slot with the best link to a source; of equal ones that with the best links onward."""

        def quality(name: SlotName) -> tuple[float, float]:
            onward = sum(speed(self.links, name, peer) for peer in names if peer != name)
            return (speed(self.links, source, name), onward)

        return max(names, key=quality)

    def _tree(self, root: SlotName, members: list[SlotName]) -> list[WeightRoute]:
        """Return the tree below a root after which the last member has its copy soonest; the flattest of equal ones."""
        nearest = sorted(members, key=lambda name: -speed(self.links, root, name))
        fan_outs = (len(members), *(fan_out for fan_out in _FAN_OUTS if fan_out < len(members)))
        trees = ([self._route(source, name) for source, name in _heap(root, nearest, fan_out)] for fan_out in fan_outs)
        return min(trees, key=lambda tree: weight_sync_s(tuple(tree), self.machines, 1.0))

    def _route(self, source: SlotName, target: SlotName) -> WeightRoute:
        return WeightRoute(
            source=source,
            target=target,
            gb_per_s=speed(self.links, source, target),
            crosses_region=not self._is_home(source, target),
        )


def _heap(root: SlotName, names: list[SlotName], fan_out: int) -> list[tuple[SlotName, SlotName]]:
    """Return source and target of every edge of the tree in which each serves `fan_out`, filled level by level."""
    nodes = [root, *names]
    return [(nodes[index // fan_out], name) for index, name in enumerate(names)]
