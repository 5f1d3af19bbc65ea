"""What SkyPilot itself makes of our settings, and the dead man's command run for real."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hexcloud.adapters.provisioners.sky_config import DEAD_MAN, DEAD_MAN_MINUTES, NO_UPLOAD, guarded
from hexcloud.controller.outside import Timing

USERS = """
aws: {use_ssm: false, post_provision_runcmd: [echo mine]}
gcp: {remote_identity: LOCAL_CREDENTIALS, labels: {team: mine}}
azure: {remote_identity: my-identity}
"""
SENT = """
import json
import sky
from hexcloud.adapters.provisioners.sky_api import _guard
from sky.server.requests.payloads import get_override_skypilot_config_from_client
from sky.utils import annotations
annotations.client_api(_guard)(sky.skypilot_config)
print(json.dumps(get_override_skypilot_config_from_client()))
"""


def test_what_travels_to_skypilots_server_keeps_the_users_settings_and_every_key_here(tmp_path: Path) -> None:
    pytest.importorskip("sky", reason="SkyPilot is not installed")
    (tmp_path / ".sky").mkdir()
    (tmp_path / ".sky/config.yaml").write_text(USERS)
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", SENT], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sent = json.loads(done.stdout.splitlines()[-1])
    assert sent["aws"] == {
        "use_ssm": False,
        "post_provision_runcmd": ["echo mine", DEAD_MAN],
        "remote_identity": NO_UPLOAD,
    }
    assert sent["gcp"] == {"remote_identity": NO_UPLOAD, "labels": {"team": "mine"}}
    assert sent["azure"] == {"remote_identity": "my-identity"}
    assert sent["nebius"] == {"remote_identity": NO_UPLOAD}


def test_a_machine_without_our_program_ends_and_one_with_it_does_not(tmp_path: Path) -> None:
    """The command that the timer runs, with a `shutdown` that leaves a note, and only this test's processes in view."""
    (tmp_path / "shutdown").write_text("#!/bin/sh\necho $* > down\n")
    (tmp_path / "pgrep").write_text('#!/bin/sh\nexec /usr/bin/pgrep -P "$TEST_PARENT" "$@"\n')
    for name in ("shutdown", "pgrep"):
        (tmp_path / name).chmod(0o755)
    *timer, shell, flag, script = shlex.split(DEAD_MAN)
    assert timer[0] == "systemd-run" and f"--on-active={DEAD_MAN_MINUTES}min" in timer
    program = subprocess.Popen(["sh", "-c", "sleep 60; true", "python -m hexcloud.node rollout"])
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TEST_PARENT": str(os.getpid())}
    subprocess.run([shell, flag, script], env=environ, cwd=tmp_path, check=True)
    assert not (tmp_path / "down").exists()
    program.kill()
    program.wait()
    subprocess.run([shell, flag, script], env=environ, cwd=tmp_path, check=True)
    assert (tmp_path / "down").read_text() == "-h now\n"


def test_it_waits_longer_than_a_launch_of_usual_machines_may_take() -> None:
    timing = Timing.of_clouds(300.0)
    assert timing.provision_s + timing.setup_s < DEAD_MAN_MINUTES * 60


def test_settings_that_are_broken_are_left_to_skypilot_to_refuse() -> None:
    assert guarded({"aws": "mine"})["aws"] == {"remote_identity": NO_UPLOAD, "post_provision_runcmd": [DEAD_MAN]}
