"""Google's account limits on GPUs, as quotas with our keys: per region, and the one over all regions."""

import math
import re
from collections.abc import Iterable

from hexcloud.adapters.clouds.gcp_answers import QuotaLine
from hexcloud.domain.market import Quota

GLOBAL_METRIC = "GPUS_ALL_REGIONS"
GLOBAL_KEY = f"gcp/global/{GLOBAL_METRIC}"
_GPU_METRIC = re.compile(r"(PREEMPTIBLE_)?NVIDIA_[A-Z0-9_]+_GPUS")


def quotas_of(region: str, lines: Iterable[QuotaLine], over_all: Iterable[QuotaLine]) -> tuple[Quota, ...]:
    """Return what is left of the limits of a region and of the one over all regions, in GPUs, by key."""
    here = [(f"gcp/{region}/{line.metric}", line) for line in lines if _GPU_METRIC.fullmatch(line.metric)]
    everywhere = [(GLOBAL_KEY, line) for line in over_all if line.metric == GLOBAL_METRIC]
    found = {key: quota for key, line in here + everywhere if (quota := _quota(key, line))}
    return tuple(found[key] for key in sorted(found))


def _quota(key: str, line: QuotaLine) -> Quota | None:
    """A limit of -1 is none; what cannot be a limit is left out."""
    if not (math.isfinite(line.limit) and math.isfinite(line.usage) and line.limit >= 0):
        return None
    return Quota(key=key, left=max(0.0, line.limit - max(0.0, line.usage)), limit=line.limit)
