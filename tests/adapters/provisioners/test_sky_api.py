"""SkyPilot's client as we use it, as far as that needs no server. Launches of the real one are in the cloud tier."""

import subprocess
import sys
from pathlib import Path

QUIET = """
import logging
import sys
from hexcloud.adapters.provisioners.sky_api import SkyApi
from hexcloud.domain.errors import RateLimitError
assert "sky" not in sys.modules, "SkyPilot takes seconds to import: only when it is asked"
try:
    SkyApi().has("hx-nobody")
except RateLimitError as error:
    print("silent:", error, file=sys.stderr)
logging.getLogger("apscheduler.scheduler").info("Scheduler started")
"""


def test_a_server_that_cannot_be_reached_is_said_in_a_line_and_standard_output_stays_ours(tmp_path: Path) -> None:
    environ = {
        "HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": ":".join(sys.path),
        "SKYPILOT_API_SERVER_ENDPOINT": "http://me:made-up@127.0.0.1:9",
        "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
    }
    done = subprocess.run([sys.executable, "-c", QUIET], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "silent: SkyPilot's API server, or what it needs of the network, does not answer" in done.stderr
    assert "made-up" not in done.stderr
    assert "Scheduler started" not in done.stderr, "what other libraries say of their daily work is for nobody"
