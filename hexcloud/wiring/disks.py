"""Whether any cloud that a run may use gives its machines disks for what it keeps there; better told before a plan."""

from hexcloud.domain.errors import ConfigError
from hexcloud.domain.plan import Role
from hexcloud.domain.workload import Workload
from hexcloud.estimate.disk import disk_gib, most_disk_gib


def require_disks(workload: Workload, clouds: tuple[str, ...]) -> None:
    """Raise ConfigError where none of the clouds has such disks; no clouds: any may be used."""
    most = {cloud: most_disk_gib(cloud) for cloud in clouds}
    for role in Role:
        needed = disk_gib(role, workload)
        if most and all(gib is not None and gib < needed for gib in most.values()):
            largest = ", ".join(f"{gib} GiB on {cloud}" for cloud, gib in most.items())
            raise ConfigError(
                f"model: a {role.value} node of {workload.model.name} keeps up to {needed} GiB on its disk (weights of "
                f"{'the versions kept' if role is Role.ROLLOUT else 'the versions kept, and checkpoints'}), and the "
                f"largest disk of a machine is {largest}: allow other clouds, or take a smaller model"
            )
