"""The nodes' image: this machine's root with SSH, a user and SkyPilot's runtime laid over it, in one cached file."""

import fcntl
import hashlib
import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
SIZE = "8G"
"""Of a sparse file: about 1.2 GB are written."""


def cache() -> Path:
    """Return where images are kept between runs: HEXCLOUD_BED_CACHE, else the user's cache."""
    return Path(os.environ.get("HEXCLOUD_BED_CACHE") or Path.home() / ".cache" / "hexcloud-bed")


def image() -> Path:
    """Return the image for this SkyPilot and these scripts; build it first where it is missing (minutes, network)."""
    skypilot = version("skypilot")
    recipe = [(HERE / name).read_bytes() for name in ("image_build.sh", "image_setup.sh")]
    facts = [*recipe, skypilot.encode(), Path("/etc/debian_version").read_bytes()]
    key = hashlib.sha256(b"\0".join(facts)).hexdigest()[:12]
    built = cache() / f"node-{key}.img"
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            _build(built, skypilot)
    return built


def _build(built: Path, skypilot: str) -> None:
    part = built.with_suffix(".part")
    part.unlink(missing_ok=True)
    subprocess.run(["truncate", "-s", SIZE, part], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", part], check=True)
    apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = [*apart, "bash", str(HERE / "image_build.sh"), str(part), str(HERE / "image_setup.sh"), skypilot]
    with built.with_suffix(".log").open("w") as log:
        done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the nodes' image was not built; see {log.name}")
    os.replace(part, built)
    for old in cache().glob("node-*.img"):
        if old != built:
            old.unlink()


if __name__ == "__main__":
    begun_at = time.monotonic()
    sys.stdout.write(f"{image()} in {time.monotonic() - begun_at:.0f} s\n")
