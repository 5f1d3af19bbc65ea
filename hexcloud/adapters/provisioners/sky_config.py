"""What SkyPilot is told beside the task, over the user's own settings: keys stay here, and machines do not outlive us.

SkyPilot copies the credential files of every cloud to every machine unless it is told not to. Machines end themselves
by the role or service account that SkyPilot gives them.
"""

from collections.abc import Mapping

from pydantic import JsonValue

KEEPS_KEYS = ("aws", "gcp", "azure", "kubernetes", "ssh", "slurm", "oci", "vast", "nebius")
"""Clouds whose credential files SkyPilot 0.14 can be told to leave here."""
NO_UPLOAD, UPLOAD = "NO_UPLOAD", "LOCAL_CREDENTIALS"
DEAD_MAN_MINUTES = 90
"""From the boot to the end of a machine on which no program of ours runs: longer than a launch may take."""
DEAD_MAN = (
    f"systemd-run --unit=hexcloud-dead-man --on-active={DEAD_MAN_MINUTES}min sh -c "
    "'pgrep -f \"hexcloud[.]node (rollout|trainer)\" || shutdown -h now'"
)
"""SkyPilot's own watchdog is armed after set-up only. The brackets keep the command from finding itself."""


def guarded(config: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return what to lay over SkyPilot's settings `config`; an identity that these name for machines is kept."""
    over: dict[str, dict[str, JsonValue]] = {cloud: {} for cloud in KEEPS_KEYS}
    for cloud in KEEPS_KEYS:
        named = _entry(config, cloud).get("remote_identity")
        if named is None or str(named).upper() == UPLOAD:
            over[cloud]["remote_identity"] = NO_UPLOAD
    at_boot = _entry(config, "aws").get("post_provision_runcmd")
    over["aws"]["post_provision_runcmd"] = [*(at_boot if isinstance(at_boot, list) else []), DEAD_MAN]
    return {cloud: entry for cloud, entry in over.items() if entry}


def _entry(config: Mapping[str, JsonValue], cloud: str) -> Mapping[str, JsonValue]:
    found = config.get(cloud)
    return found if isinstance(found, dict) else {}
