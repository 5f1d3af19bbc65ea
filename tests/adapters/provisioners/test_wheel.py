"""The wheel of a checkout, and the wheel of what was installed from it, are the same package."""

import os
import subprocess
import sys
import time
import venv
import zipfile
from pathlib import Path

import pytest

from hexcloud.adapters.provisioners.wheel import make_wheel
from hexcloud.domain.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment into which the wheel was installed; returns its interpreter."""
    folder = tmp_path_factory.mktemp("env")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    return python


def run(python: Path, code: str, cwd: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(python), "-c", code], cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def package_of(python: Path, cwd: Path) -> Path:
    return Path(run(python, "import hexcloud; print(hexcloud.__file__)", cwd)).parent


def test_a_fresh_environment_imports_what_was_installed(installed: Path, tmp_path: Path) -> None:
    package = package_of(installed, tmp_path)
    assert package.is_relative_to(installed.parents[1])
    assert (package / "node" / "__main__.py").read_bytes() == (ROOT / "hexcloud/node/__main__.py").read_bytes()
    assert (package / "_deploy/sky/rollout.yaml").exists() and (package / "_catalogs/gpus.yaml").exists()
    assert (installed.parent / "hexcloud").exists()
    said = "import importlib.metadata as m; d = m.distribution('hexcloud'); print(d.version, len(d.requires))"
    version, needs = run(installed, said, tmp_path).split()
    assert version == "0.1.0" and int(needs) > 15


def test_the_wheel_of_an_installation_holds_the_same_files(installed: Path, wheel: Path, tmp_path: Path) -> None:
    again = make_wheel(tmp_path, package_of(installed, tmp_path))
    assert again.name == wheel.name
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        assert one.namelist() == other.namelist()
        assert all(one.read(name) == other.read(name) for name in one.namelist())


def test_the_same_files_make_the_same_wheel_whenever(wheel: Path, tmp_path: Path) -> None:
    time.sleep(2.1)  # a zip file counts in steps of two seconds
    assert make_wheel(tmp_path).read_bytes() == wheel.read_bytes()


def test_nothing_but_the_product_travels(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    assert {name.split("/")[0] for name in names} == {"hexcloud", "hexcloud-0.1.0.dist-info"}
    assert not [name for name in names if "__pycache__" in name or "/." in name]


def test_what_is_neither_checkout_nor_installation_is_refused(tmp_path: Path) -> None:
    package = tmp_path / "hexcloud"
    package.mkdir()
    (package / "__init__.py").touch()
    with pytest.raises(ConfigError, match="neither a checkout nor an installation"):
        make_wheel(tmp_path / "out", package)


def test_an_installation_that_lost_a_file_is_refused(installed: Path, tmp_path: Path) -> None:
    package = package_of(installed, tmp_path)
    lost = package / "_policies" / "cheapest.yaml"
    kept = lost.read_bytes()
    lost.unlink()
    try:
        with pytest.raises(ConfigError, match=r"cheapest\.yaml: belongs to the installation and cannot be read"):
            make_wheel(tmp_path, package)
    finally:
        lost.write_bytes(kept)


@pytest.mark.slow
def test_hatchling_puts_the_same_package_into_its_wheel(wheel: Path, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (theirs,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(theirs) as other:
        assert of_package(ours) == of_package(other)


def of_package(wheel: zipfile.ZipFile) -> dict[str, bytes]:
    return {name: wheel.read(name) for name in wheel.namelist() if name.startswith("hexcloud/")}
