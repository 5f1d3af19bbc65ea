"""disk: how much a run keeps on the disk of a machine at most, and how large a disk a cloud gives a machine. Pure.

Versions of the weights are counted as nodes keep them, whatever comes beside them while they are made: a test holds the
numbers to those of the runtime. A machine's disk is never smaller than what SkyPilot rents unasked.
"""

import math

from hexcloud.domain.fleet import DEFAULT_DISK_GIB
from hexcloud.domain.plan import Role
from hexcloud.domain.workload import Workload
from hexcloud.estimate.memory import GIB

SYSTEM_GIB = 100.0
"""Image, drivers, environments of node program and engine, logs (general knowledge: under 70 GiB)."""
DELTA_SHARE_MOST = 0.5
"""Of a whole version: a larger delta is not made."""
ROLLOUT_WHOLE = 2 + 1 + 1
"""Versions: those kept, the one that comes, and one on the way to it by deltas."""
ROLLOUT_DELTAS = 3
"""Those that led to the versions kept. A chain that is taken in the place of a whole version is no larger than it."""
TRAINER_WHOLE = 4 + 1 + 1 + 1
"""Versions: those kept, the one that is written, the model that training began with, and the result."""
TRAINER_DELTAS = 8 + 1
CHECKPOINTS = 2 + 1
"""Those kept, and the one that is written; all on the disk of the gang's head."""
CHECKPOINT_BYTES_PER_PARAM = 12.0
"""Weights and Adam's moments in fp32."""
REFERENCE_BYTES_PER_PARAM = 4.0
_MOST_GIB = {"aws": 16_384, "gcp": 65_536}
"""Of a boot disk as SkyPilot rents it: gp3 (EC2 API reference, EbsBlockDevice), persistent disks (Compute Engine)."""


def disk_gib(role: Role, workload: Workload) -> int:
    """Return the disk of a machine of a role, GiB. All machines of a gang, or of a replica, have the same."""
    if role is Role.ROLLOUT:
        versions = ROLLOUT_WHOLE + 1 + ROLLOUT_DELTAS * DELTA_SHARE_MOST
        kept_bytes = versions * workload.version_bytes
    else:
        versions = TRAINER_WHOLE + TRAINER_DELTAS * DELTA_SHARE_MOST
        per_param = CHECKPOINT_BYTES_PER_PARAM + REFERENCE_BYTES_PER_PARAM * workload.keeps_reference
        kept_bytes = versions * workload.version_bytes + CHECKPOINTS * per_param * workload.model.params
    return max(DEFAULT_DISK_GIB, math.ceil(SYSTEM_GIB + kept_bytes / GIB))


def most_disk_gib(cloud: str) -> int | None:
    """Return the largest disk of a machine on a cloud, GiB; None where it is not known, or machines bring their own."""
    return _MOST_GIB.get(cloud)
