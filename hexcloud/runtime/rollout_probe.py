"""Measure a link on the coordinator's order, and report it."""

import structlog

from hexcloud.domain.errors import EngineError
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import LinkReport
from hexcloud.runtime.probe import LinkCap, payload_bytes, probe
from hexcloud.runtime.rollout_link import CoordinatorLink, RefusedError, RevokedError

log = structlog.get_logger()


async def probe_and_report(link: CoordinatorLink, node_id: NodeId, target: str, cap: LinkCap) -> None:
    """Probe `host:port` and tell the coordinator; a failure is logged, and the coordinator orders it again.

    The coordinator's own address is probed over the line to it, as a rented head has no other port open.
    """
    size = payload_bytes(cap.bucket.bytes_per_s)
    try:
        found = await link.measure(size) if await link.leads_to(target) else await probe(target, size, cap)
        await link.report_link(
            LinkReport(node_id=node_id, target=target, gb_per_s=found.gb_per_s, latency_ms=found.latency_ms)
        )
    except (EngineError, RefusedError, RevokedError) as error:
        log.warning("probe_failed", target=target, reason=str(error))
