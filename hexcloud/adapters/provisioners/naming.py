"""What a node is called on a cloud: its SkyPilot cluster, and the tags by which its machines are found again.

Invariants: two nodes never share a cluster name or a tag, and a node's id is read back from the tags alone, so that
machines are found when every store is lost. All spellings are allowed as labels of Google Cloud, the strictest.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence

from hexcloud.domain.fleet import Node, NodeId, RunId, node_id
from hexcloud.domain.label import NODE_TAG, label
from hexcloud.domain.plan import SlotName

RUN = "hexcloud-run"
SLOT = "hexcloud-slot"
NODE = NODE_TAG
"""Slot and attempt; with `-RANK` behind it: of a gang, on each of its machines until each is told its own."""
GANG = "hexcloud-gang"
"""How many machines stand and fall together."""
CLUSTER = "hexcloud-cluster"
"""SkyPilot's cluster, by its name with SkyPilot."""
MAX_GANG = 40
"""Google Cloud allows 64 labels on a machine, AWS 50, and SkyPilot sets some of its own."""
MAX_CLUSTER_CHARS = 40
MAX_LABEL_CHARS = 63
_HASH_CHARS = 10
_CODED = re.compile(r"_([0-9a-f]{2})")


def cluster_name(run_id: RunId, slot: SlotName, attempt: int) -> str:
    """Return `hx-<run>-<slot>-<attempt>`; where that is too long or not spelled so on a cloud, with a hash in it."""
    tail = f"{slot}-{attempt}"
    plain = f"hx-{run_id}-{tail}"
    spelled = re.sub(r"[^a-z0-9-]+", "-", plain.lower())
    if spelled == plain and len(plain) <= MAX_CLUSTER_CHARS and not plain.endswith("-"):
        return plain
    digest = hashlib.sha256(f"{run_id}.{slot}.{attempt}".encode()).hexdigest()[:_HASH_CHARS]
    room = MAX_CLUSTER_CHARS - len(digest) - 1
    return f"{spelled[:room].rstrip('-')}-{digest}"


def tags_of(nodes: Sequence[Node], cluster: str) -> dict[str, str]:
    """Return the tags that every machine of a launch begins with. Raises ValueError for a gang too large for them."""
    if len(nodes) > MAX_GANG:
        raise ValueError(f"a gang of {len(nodes)} machines; SkyPilot's clusters carry tags for {MAX_GANG}")
    head = nodes[0]
    tags = {RUN: run_label(head.run_id), GANG: str(len(nodes)), CLUSTER: cluster}
    if len(nodes) == 1:
        return tags | own_tags(head)
    return tags | {f"{NODE}-{rank}": _node_label(node.slot, node.attempt) for rank, node in enumerate(nodes)}


def own_tags(node: Node) -> dict[str, str]:
    """Return the tags that tell one machine of a gang from the others."""
    return {SLOT: label(node.slot), NODE: _node_label(node.slot, node.attempt)}


def run_label(run_id: RunId) -> str:
    """Return the tag of a run: its id, or what fits of it with a hash."""
    spelled = label(run_id)
    if len(spelled) <= MAX_LABEL_CHARS:
        return spelled
    return f"{spelled[: MAX_LABEL_CHARS - _HASH_CHARS - 1]}-{hashlib.sha256(run_id.encode()).hexdigest()[:_HASH_CHARS]}"


def node_ids(run_id: RunId, tags: Mapping[str, str]) -> tuple[NodeId, ...]:
    """Return which nodes a machine of a run may be: its own, else every member of its gang."""
    own = tags.get(NODE)
    labels = [own] if own else [value for key, value in tags.items() if key.startswith(f"{NODE}-")]
    found = (_plain(one).rpartition(".") for one in sorted(labels))
    return tuple(node_id(run_id, SlotName(slot), int(attempt)) for slot, _, attempt in found if attempt.isdecimal())


def slot_and_attempt(node: NodeId) -> tuple[RunId, SlotName, int]:
    """Take a node's id apart. Raises ValueError when it is none."""
    run, slot, attempt = node.rsplit(".", 2)
    return RunId(run), SlotName(slot), int(attempt)


def _node_label(slot: SlotName, attempt: int) -> str:
    spelled = label(f"{slot}.{attempt}")
    if len(spelled) > MAX_LABEL_CHARS:
        raise ValueError(f"the slot name {slot!r} is too long for a tag")
    return spelled


def _plain(label: str) -> str:
    spelled = _CODED.sub(lambda match: f"\\x{match[1]}", label)
    return spelled.encode().decode("unicode_escape").encode("latin-1").decode(errors="replace")
