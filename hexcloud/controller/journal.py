"""Journal: the run's history as users read it, written from one place so that every event has both clocks."""

from dataclasses import dataclass

from hexcloud.controller.life import was_lost, was_noticed
from hexcloud.controller.observe import Seen
from hexcloud.domain.event import Event
from hexcloud.domain.fleet import Node, NodeStatus
from hexcloud.ports import Store

Field = str | float | int | bool | None
_KINDS = {
    NodeStatus.READY: "node_ready",
    NodeStatus.DRAINING: "node_draining",
    NodeStatus.STOPPING: "node_stopping",
    NodeStatus.LOST: "node_lost",
    NodeStatus.GONE: "node_gone",
}


@dataclass(frozen=True)
class Journal:
    """Writes events and node records of one turn. Raises StoreError."""

    store: Store
    seen: Seen

    def say(self, kind: str, text: str, node: str = "", **fields: Field) -> None:
        """Append an event."""
        seen = self.seen
        event = Event(at_s=seen.now_s, wall_s=seen.wall_s, kind=kind, node=node, text=text, fields=fields)
        self.store.add_event(seen.run.id, event)

    def save(self, old: Node, new: Node) -> None:
        """Store a node's new record, and the event of it."""
        self.store.save_node(new)
        kind = _KINDS.get(new.status)
        if was_lost(old, new):
            kind = "node_lost"
        if was_noticed(old, new):
            kind = "node_interrupted"
        if kind and old.status is not new.status:
            text = f"{new.slot} on {new.offer_id}" + (f": {new.cause}" if new.cause else "")
            took = self._took(new) if new.status is NodeStatus.READY else {}
            self.say(kind, text, node=new.id, slot=new.slot, role=new.role.value, cause=new.cause, **took)

    def _took(self, node: Node) -> dict[str, Field]:
        """Return how long a machine took from the asking to its first word, and the parts that it knows itself.

        Wall seconds. Pools learn from the whole: see `Experience`.
        """
        view, run = self.seen.node_view(node.id), self.seen.run
        took_s = (self.seen.now_s - node.requested_at_s) / run.clock_scale
        known = {"setup_s": view.startup.setup_s, "program_s": view.startup.program_s} if view else {}
        return {"took_s": round(took_s, 1), **{part: round(seconds, 1) for part, seconds in known.items()}}
