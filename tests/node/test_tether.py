import os
import subprocess
import sys

import psutil
import pytest

from hexcloud.node.tether import tethered

PARENT = """
import subprocess, sys, time
from hexcloud.node.tether import tethered
child = subprocess.Popen(tethered([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]))
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_a_child_dies_with_a_killed_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        said = {parent.stdout.readline().strip(), parent.stdout.readline().strip()}
        child = psutil.Process(int((said - {"up"}).pop()))
        assert child.is_running()
        parent.kill()
        gone, _ = psutil.wait_procs([child], timeout=5)
        assert gone


def test_a_child_whose_parent_is_gone_already_never_starts() -> None:
    command = tethered([sys.executable, "-c", "print('ran')"])
    command[3] = "1" if os.getpid() != 1 else "2"
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (1, "")


def test_a_tethered_command_runs_and_keeps_its_exit_code() -> None:
    done = subprocess.run(tethered([sys.executable, "-c", "raise SystemExit(7)"]), timeout=20, check=False)
    assert done.returncode == 7
