"""Settle: what every machine cost since the last turn. It never understates: in doubt a span is long and dear.

Where the cloud says when a machine's bill began and ended, that is what is billed.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from hexcloud.controller.memory import Mark, Memory
from hexcloud.controller.observe import Seen
from hexcloud.controller.outside import Timing
from hexcloud.controller.prices import disk_usd_per_hour
from hexcloud.domain.fleet import Node, NodeId, NodeStatus
from hexcloud.domain.ledger import CostKind, LedgerEntry
from hexcloud.domain.market import LinkScope
from hexcloud.domain.messages import RunView
from hexcloud.domain.offer import Place, place_of
from hexcloud.domain.plan import Role
from hexcloud.domain.run import RunRecord
from hexcloud.estimate.transfer import egress_usd, egress_usd_per_gb
from hexcloud.planner.distance import continent
from hexcloud.ports import Store

SECONDS_PER_HOUR = 3600.0
_FED = frozenset({NodeStatus.READY, NodeStatus.DRAINING})


@dataclass(frozen=True)
class Span:
    """A node's time to bill, run clock."""

    node: Node
    from_s: float
    to_s: float


Marks = dict[tuple[NodeId, CostKind], Mark]


def settle(seen: Seen, store: Store, memory: Memory, timing: Timing) -> None:
    """Write what was spent since the last turn, then keep the view that counts the versions. Raises StoreError."""
    if memory.marks is None:
        memory.marks = marks_of(store.ledger(seen.run.id))
    spans = [span for node in seen.nodes for span in _spans(node, seen, memory.marks, timing)]
    entries = [entry for span in spans for entry in _machine_entries(span, seen, memory.marks, timing)]
    entries += _egress_entries(seen, store.view(seen.run.id), memory.marks)
    if entries:
        store.add_ledger(seen.run.id, tuple(entries))
    memory.marks |= marks_of(tuple(entries))
    memory.marks |= {
        (span.node.id, CostKind.COMPUTE): Mark(span.to_s, seen.prices.compute(span.node.offer_id)) for span in spans
    }
    if seen.view:
        store.save_view(seen.run.id, seen.view)


def marks_of(entries: tuple[LedgerEntry, ...]) -> Marks:
    """Return up to when each node and kind is billed."""
    marks: Marks = {}
    for entry in entries:
        known = marks.get((entry.node_id, entry.kind))
        if known is None or entry.to_s >= known.to_s:
            marks[entry.node_id, entry.kind] = Mark(entry.to_s, entry.usd_per_hour)
    return marks


def _spans(node: Node, seen: Seen, marks: Marks, timing: Timing) -> Iterator[Span]:
    """Yield the times since the node's last bill: those of its machines, or where the cloud knows none, our own."""
    mark = marks.get((node.id, CostKind.COMPUTE))
    machines = sorted((bill for bill in seen.billed if bill.node_id == node.id), key=lambda bill: bill.from_s)
    if not machines:
        yield from _span(node, mark.to_s if mark else node.requested_at_s, seen, mark is not None, timing)
    until_s = mark.to_s if mark else -math.inf
    for machine in machines:
        from_s = max(until_s, _run_s(machine.from_s, seen.run))
        if machine.to_s is None:
            found = tuple(_span(node, from_s, seen, True, timing))
        else:
            to_s = _run_s(machine.to_s, seen.run)
            found = (Span(node, from_s, to_s),) if to_s > from_s else ()
        until_s = max([until_s, *(span.to_s for span in found)])
        yield from found


def _span(node: Node, from_s: float, seen: Seen, is_known: bool, timing: Timing) -> Iterator[Span]:
    """Yield the time from a moment on, unless there is nothing to bill (yet). `is_known`: a machine did exist."""
    is_listed = seen.is_listed(node)
    if not is_listed and (node.status is NodeStatus.GONE or (not is_known and node.status is NodeStatus.REQUESTED)):
        return
    to_s = seen.now_s
    if is_listed is False:
        to_s = min(to_s, from_s + _alone_s(node, seen, timing))
    if to_s > from_s:
        yield Span(node, from_s, to_s)


def _run_s(wall_s: float, run: RunRecord) -> float:
    """Return a moment on the run clock."""
    return run.clock_origin_run_s + (wall_s - run.clock_origin_wall_s) * run.clock_scale


def _alone_s(node: Node, seen: Seen, timing: Timing) -> float:
    """Return the run seconds that a vanished machine can have outlived its last bill: its spend lease ended it."""
    start_s = seen.startup_s(node.offer_id) if node.ready_at_s is None else 0.0
    return start_s + (timing.spend_lease_s + timing.self_end_s + timing.teardown_s) * seen.run.clock_scale


def _machine_entries(span: Span, seen: Seen, marks: Marks, timing: Timing) -> list[LedgerEntry]:
    """Bill the disk, and rent at the dearer of the prices at both ends of the span.

    When the controller was away for long, a price may have risen and fallen unseen: then rent is billed at its ceiling.
    """
    mark = marks.get((span.node.id, CostKind.COMPUTE))
    rent = max(seen.prices.compute(span.node.offer_id), mark.usd_per_hour if mark else 0.0)
    if span.to_s - span.from_s > timing.spend_lease_s / 2 * seen.run.clock_scale:
        rent = max(rent, seen.prices.rent_ceiling(span.node.offer_id))
    entries = [_entry(span, CostKind.COMPUTE, rent)]
    disk = disk_usd_per_hour(span.node.offer_id, span.node.disk_gib)
    return [*entries, _entry(span, CostKind.DISK, disk)] if disk else entries


def _entry(span: Span, kind: CostKind, usd_per_hour: float) -> LedgerEntry:
    usd = usd_per_hour * (span.to_s - span.from_s) / SECONDS_PER_HOUR
    return LedgerEntry(
        node_id=span.node.id, kind=kind, from_s=span.from_s, to_s=span.to_s, usd_per_hour=usd_per_hour, usd=usd
    )


def _egress_entries(seen: Seen, before: RunView | None, marks: Marks) -> list[LedgerEntry]:
    """Bill to the head's node what the weights cost on their way."""
    head = next((node for node in seen.standing() if node.role is Role.TRAINER), None)
    if head is None:
        return []
    mark = marks.get((head.id, CostKind.EGRESS))
    span = Span(head, mark.to_s if mark else head.requested_at_s, seen.now_s)
    usd = (_sent_usd if seen.run.spec.is_real else _planned_usd)(head, seen, before)
    hours = (span.to_s - span.from_s) / SECONDS_PER_HOUR
    if not usd or hours <= 0:
        return []
    return [_entry(span, CostKind.EGRESS, usd / hours)]


def _planned_usd(head: Node, seen: Seen, before: RunView | None) -> float:
    """Return what the versions published since cost on their way, as the planner prices it: local ones stand in."""
    versions = _versions(seen.view, before)
    return versions * egress_usd(seen.run.workload.version_bytes, _usd_per_gb(head, seen)) if versions else 0.0


def _sent_usd(head: Node, seen: Seen, before: RunView | None) -> float:
    """Return what the bytes cost that the coordinator has really sent since, each to where its node stands."""
    if seen.view is None:
        return 0.0
    known = before.sent_bytes if before and before.head == seen.view.head else {}
    source, places = place_of(head.offer_id), {node.id: place_of(node.offer_id) for node in seen.nodes}
    total = 0.0
    for node_id, sent in seen.view.sent_bytes.items():
        since = sent - known.get(node_id, 0)
        size = since if since >= 0 else sent  # the coordinator began anew
        total += egress_usd(size, _between(source, places.get(node_id, source), seen))
    return total + _stored_usd(source, seen.view, before, seen)


def _stored_usd(source: Place, view: RunView, before: RunView | None, seen: Seen) -> float:
    """Return what the bytes cost that went to stores of other regions; to one in the own region the way is free."""
    known = before.stored_bytes if before and before.head == view.head else {}
    total = 0.0
    for region, sent in view.stored_bytes.items():
        cloud, _, name = region.partition("/")
        since = sent - known.get(region, 0)
        usd_per_gb = 0.0 if (cloud, name) == source[:2] else _between(source, Place(cloud, name, "-"), seen)
        total += egress_usd(since if since >= 0 else sent, usd_per_gb)
    return total


def _versions(view: RunView | None, before: RunView | None) -> int:
    """Return how many versions were published between two views; after a recovery also the one it began with."""
    if view is None:
        return 0
    if before is None:
        return view.version
    if view.epoch != before.epoch:
        return view.version - view.checkpoint_version + 1
    return view.version - before.version


def _usd_per_gb(head: Node, seen: Seen) -> float:
    """Return the price of one version's way, USD for each of its GB.

    One copy goes to every other region with rollout nodes at work, and from its first zone to every further one.
    """
    source = place_of(head.offer_id)
    regions: dict[tuple[str, str], set[Place]] = {}
    for node in seen.standing():
        if node.status in _FED and node.role is Role.ROLLOUT:
            place = place_of(node.offer_id)
            regions.setdefault((place.cloud, place.region), set()).add(place)
    total = 0.0
    for region, places in regions.items():
        entry = source if region == (source.cloud, source.region) else min(places)
        total += _between(source, entry, seen) + sum(_between(entry, place, seen) for place in places)
    return total


def _between(source: Place, target: Place, seen: Seen) -> float:
    """Return USD per GB; within a zone it is free."""
    return 0.0 if source == target else egress_usd_per_gb(seen.market.network, source.cloud, _scope(source, target))


def _scope(source: Place, target: Place) -> LinkScope:
    """Return how far bytes leave, as clouds bill it: for another cloud they leave for the world."""
    if source.cloud != target.cloud:
        return LinkScope.WORLD
    if source.region == target.region:
        return LinkScope.REGION
    here = continent(source.region)
    return LinkScope.CONTINENT if here is not None and here == continent(target.region) else LinkScope.WORLD
