"""The wheel stands alone: installed elsewhere, it plans with the catalogs and policies that it brought along."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.slow


def run(*command: str, cwd: Path, **env: str) -> str:
    done = subprocess.run(command, cwd=cwd, env=os.environ | env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the installed wheel and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist"), cwd=ROOT)
    (wheel,) = (folder / "dist").glob("*.whl")
    target = folder / "site"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target))
    run(*pip, str(wheel), cwd=folder)
    return target


def test_installed_wheel_plans_from_another_folder(installed: Path, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    command = (sys.executable, "-m", "hexcloud.cli", "plan", "--json", "--policy", "spot_cautious")
    plan = json.loads(run(*command, cwd=tmp_path, PYTHONPATH=str(installed), HEXCLOUD_HOME=home))
    assert plan["cost_usd_per_hour"] > 0
    assert {line["role"] for line in plan["allocation"]} == {"trainer", "rollout"}


def test_installed_wheel_brings_its_own_data(installed: Path, tmp_path: Path) -> None:
    code = "from hexcloud.adapters.files import catalog_root, policy_root; print(catalog_root(), policy_root())"
    roots = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(installed)).split()
    for root, source in zip(roots, ("catalogs", "policies"), strict=True):
        assert Path(root).is_relative_to(installed)
        brought = {path.relative_to(root) for path in Path(root).rglob("*") if path.is_file()}
        assert brought == {path.relative_to(ROOT / source) for path in (ROOT / source).rglob("*") if path.is_file()}
