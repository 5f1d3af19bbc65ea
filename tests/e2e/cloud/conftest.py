"""One bed for all tests of the cloud tier, and the reasons why there can be none."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from tests.e2e.cloud.bed import Bed
from tests.e2e.cloud.renter import Renter

PROGRAMS = ("unshare", "nsenter", "setpriv", "ip", "mkfs.ext4", "apt-get", "curl", "/usr/bin/python3")
LEAST_GIB = 8
TRIAL = """
mount -t tmpfs tmpfs /mnt && mkdir /mnt/a /mnt/b /mnt/disk && truncate -s 8M /mnt/file && mkfs.ext4 -q -F /mnt/file
mount -o loop /mnt/file /mnt/disk
mount -t overlay overlay -o lowerdir=/mnt/a:/mnt/b /mnt && ip link add br0 type bridge
"""


def refusal() -> str | None:
    """Return why this machine can hold no bed; None where it can."""
    if os.geteuid() != 0:
        return "needs root: it makes namespaces and mounts"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"needs {', '.join(missing)} (Debian)"
    if (free_gib := psutil.virtual_memory().available / 2**30) < LEAST_GIB:
        return f"needs {LEAST_GIB} GiB of free memory for SkyPilot's server and five machines; {free_gib:.1f} are free"
    debian = subprocess.run(["/usr/bin/python3", "-V"], capture_output=True, text=True, check=False).stdout
    if not debian.startswith(f"Python {sys.version_info.major}.{sys.version_info.minor}."):
        return f"nodes run Debian's {debian.strip()}, which cannot import what is built for {platform.python_version()}"
    apart = ["unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--mount-proc", "sh", "-ec", TRIAL]
    trial = subprocess.run(apart, capture_output=True, text=True, check=False)
    return f"the kernel refuses namespaces, loops, overlays or bridges: {trial.stderr}" if trial.returncode else None


@pytest.fixture(scope="session")
def the_bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    reason = refusal()
    if reason is not None:
        pytest.skip(reason)
    bed = Bed(tmp_path_factory.mktemp("bed"))
    try:
        bed.start()
        yield bed
    finally:
        bed.stop()


@contextmanager
def lent(the_bed: Bed) -> Iterator[Bed]:
    """Lend the bed with the usual scenario. A test asserts that it leaves no machine; what a failed one left ends."""
    the_bed.scenario.reset()
    before = the_bed.programs()
    yield the_bed
    the_bed.scenario.reset()
    the_bed.end_programs(since=before)
    if the_bed.running():
        _sweep(the_bed)


@pytest.fixture
def bed(the_bed: Bed) -> Iterator[Bed]:
    with lent(the_bed) as bed:
        yield bed


@pytest.fixture(scope="module")
def renter(the_bed: Bed) -> Iterator[Renter]:
    """One run for all tests of a module: to rent its machines takes minutes."""
    with lent(the_bed) as bed:
        # Long responses make a step rare, and so the weights' way between regions cheap: two regions are worth it.
        yield Renter(bed, "two-regions", response_tokens=12000)


def _sweep(bed: Bed) -> None:
    """End what a failed test left: launches on their way first, since each would bring a machine yet."""
    for words in (["api", "cancel", "--all", "-y"], ["down", "--all", "-y"]):
        bed.run(["sky", *words], check=False)
    for instance in bed.running():
        bed.terminate(instance["InstanceId"])
