import sys
import venv
from pathlib import Path

import pytest

from hexcloud.adapters.engines.sglang_home import SGLANG_PYTHON, SglangHome, find_sglang
from hexcloud.domain.errors import ConfigError


def test_no_environment_is_an_error_that_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    with pytest.raises(ConfigError, match=r"engine: .*\.venv-sglang/bin/python; `make sglang` builds one"):
        find_sglang({})
    with pytest.raises(ConfigError, match=r"there is no .*/nowhere/bin/python"):
        find_sglang({SGLANG_PYTHON: str(tmp_path / "nowhere")})


def test_an_environment_without_sglang_is_an_error(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    for given in (tmp_path / "bare", tmp_path / "bare" / "bin" / "python"):
        with pytest.raises(ConfigError, match="there is no sglang in"):
            find_sglang({SGLANG_PYTHON: str(given)})


def test_a_program_that_is_no_python_is_an_error(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("not a program")
    with pytest.raises(ConfigError, match="there is no sglang in"):
        find_sglang({SGLANG_PYTHON: str(program)})


def installed(environment: Path, platforms: str) -> Path:
    """An environment that has what pip leaves of an installed sglang: its metadata."""
    venv.create(environment, with_pip=False, symlinks=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    for name, version, points in (("sglang", "0.5.21", ""), ("plug", "1", platforms)):
        info = packages / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(points)
    return environment


def test_what_is_installed_is_told_and_a_cpu_needs_its_platform(tmp_path: Path) -> None:
    home = find_sglang({SGLANG_PYTHON: str(installed(tmp_path / "gpu", ""))})
    assert home == SglangHome(tmp_path / "gpu" / "bin" / "python", "0.5.21", ())
    with pytest.raises(ConfigError, match="runs on GPUs only"):
        home.require_cpu()
    points = "[sglang.srt.platforms]\nplain_cpu = plug:activate\n"
    found = find_sglang({SGLANG_PYTHON: str(installed(tmp_path / "cpu", points))})
    assert found.platforms == ("plain_cpu",)
    found.require_cpu()


def test_the_environment_beside_ours_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    installed(tmp_path / ".venv-sglang", "")
    assert find_sglang({}).python == tmp_path / ".venv-sglang" / "bin" / "python"
