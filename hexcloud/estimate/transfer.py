"""How many bytes new weights are, how long they travel, and what the way out of a cloud costs."""

from hexcloud.domain.market import LinkScope, Network
from hexcloud.domain.workload import Workload

DELTA_SHARE = 0.02
"""Share of bf16 values that one RL step changes: 1 to 2 % measured on 1.7B to 14B (AstraFlow, arXiv 2605.15565)."""
_INDEX_BYTES = 4


def delta_bytes(workload: Workload, changed_share: float = DELTA_SHARE) -> float:
    """Return bytes of a version sent as index and new value of what changed; never more than a whole version."""
    per_change = _INDEX_BYTES + workload.published_bytes_per_param
    return min(workload.version_bytes, workload.model.params * changed_share * per_change)


def transfer_s(size_bytes: float, gb_per_s: float, latency_ms: float = 0.0) -> float:
    """Return seconds for bytes over a link."""
    return latency_ms / 1e3 + size_bytes / (gb_per_s * 1e9)


def egress_usd_per_gb(network: Network, cloud: str, scope: LinkScope) -> float:
    """Return what a cloud bills per GB sent that far; 0 when the catalog lists no price."""
    return next((row.usd_per_gb for row in network.egress if row.cloud == cloud and row.scope is scope), 0.0)


def egress_usd(size_bytes: float, usd_per_gb: float) -> float:
    """Return dollars for bytes that leave."""
    return size_bytes / 1e9 * usd_per_gb
