"""Every example runs as a reader would run it, from another folder, and says something."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hexcloud.adapters.files import load_run_spec

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WITHIN_S = 120.0


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_example_runs(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(example)],
        cwd=tmp_path,
        env=os.environ | {"HEXCLOUD_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 2
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"


@pytest.mark.parametrize("run_file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_run_file_is_valid(run_file: Path) -> None:
    assert load_run_spec(run_file).model_fields_set
