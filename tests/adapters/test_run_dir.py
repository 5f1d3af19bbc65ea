"""One controller per run, and a secret nobody else reads."""

import subprocess
import sys
from pathlib import Path

import pytest

from hexcloud.adapters.run_dir import RunDir, RunIsControlledError
from hexcloud.domain.errors import StoreError


def test_secret_is_private_and_survives_a_second_create(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "runs" / "main-1")
    run.create()
    first = run.secret()
    run.create()
    assert run.secret() == first
    assert len(first) == 32
    assert (run.path / "secret").stat().st_mode & 0o077 == 0


def test_a_lost_secret_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="secret is gone"):
        RunDir(tmp_path).secret()


def test_second_controller_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.create()
    with run:
        assert RunDir(tmp_path).is_controlled()
        with pytest.raises(RunIsControlledError), RunDir(tmp_path):
            pass
    assert not RunDir(tmp_path).is_controlled()


def test_a_killed_controller_frees_the_run(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.create()
    code = (
        "import time; from pathlib import Path; from hexcloud.adapters.run_dir import RunDir\n"
        f"with RunDir(Path({str(tmp_path)!r})): print('locked', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "locked"
        assert run.is_controlled()
        holder.kill()
        holder.wait()
    assert not run.is_controlled()
