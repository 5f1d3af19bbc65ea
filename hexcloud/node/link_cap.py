"""A node's emulated link, from its specification."""

from hexcloud.domain.command import NodeSpec
from hexcloud.runtime.probe import LinkCap
from hexcloud.runtime.token_bucket import TokenBucket


def link_cap(spec: NodeSpec) -> LinkCap:
    """Return the emulated link of a node; the real one when nothing is emulated."""
    if spec.emulation is None:
        return LinkCap()
    return LinkCap(TokenBucket(spec.emulation.link_bytes_per_s), spec.emulation.link_latency_ms / 1e3)
