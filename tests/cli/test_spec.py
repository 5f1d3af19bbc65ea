from pathlib import Path

import pytest

from hexcloud.cli.spec import spec_of
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.run import RunSpec


def test_nothing_asked_for_is_the_default_run() -> None:
    assert spec_of(None, {"model": None, "cloud": ()}) == RunSpec()


def test_options_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("steps: 7\ntarget: 5k\ncloud: [aws]\n")
    spec = spec_of(file, {"target": "9k", "steps": None, "cloud": ()})
    assert (spec.steps, spec.target, spec.cloud) == (7, "9k", ("aws",))


def test_the_word_none_is_no_trace() -> None:
    assert spec_of(None, {"trace": "none"}).trace is None


def test_a_misspelt_key_names_file_key_and_the_meant_one(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("stpes: 7\n")
    with pytest.raises(ConfigError, match=r"run\.yaml.*stpes.*did you mean steps"):
        spec_of(file, {})


def test_an_impossible_option_is_named() -> None:
    with pytest.raises(ConfigError, match=r"--max-usd-per-hour -3"):
        spec_of(None, {"max_usd_per_hour": -3})


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "-", "two words", "x" * 41, "night\n"])
def test_a_name_that_is_no_folders_name_is_refused_in_words(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^--name .*: a name is at most 40 letters, digits"):
        spec_of(None, {"name": name})


def test_a_target_without_a_unit_is_a_number_in_yaml(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("target: 20000\n")
    assert spec_of(file, {}).target == "20000"
    file.write_text("target: yes\n")
    with pytest.raises(ConfigError, match="target is True"):
        spec_of(file, {})
