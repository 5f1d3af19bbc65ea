import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hexcloud import wiring
from hexcloud.adapters.store import SqliteStore
from hexcloud.domain.run import RunRecord

SMALL = ("--cloud", "nebius", "--target-throughput", "10k")


def test_nothing_is_rented_when_nobody_can_be_asked(cli: Callable[..., Any], home: Path) -> None:
    said = cli("up", *SMALL)
    assert said.code == 2
    assert "add --yes" in said.err
    assert "emulated speed: 1 wall second = " in said.out
    assert wiring.open_store().runs() == ()
    assert not (home / "runs").exists()


@pytest.mark.parametrize("as_json", [False, True])
def test_a_budget_that_buys_nothing_names_the_least_that_does(
    cli: Callable[..., Any], home: Path, as_json: bool
) -> None:
    said = cli("up", *SMALL, "--budget", "0.01", "--yes", *(["--json"] if as_json else []))
    assert said.code == 1
    if as_json:
        error = json.loads(said.out)["error"]
        assert error["type"] == "BudgetError"
        assert error["least_usd"] > 0.01
    else:
        assert "USD; raise the budget" in said.err
    assert not (home / "runs").exists()


def test_a_misspelt_key_exits_2_naming_file_key_and_the_meant_one(cli: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("stpes: 5\n")
    said = cli("up", str(file), "--yes")
    assert said.code == 2
    assert "run.yaml" in said.err
    assert "did you mean steps?" in said.err


def test_a_run_of_the_same_name_that_goes_on_is_not_started_twice(
    cli: Callable[..., Any], store: SqliteStore, run: RunRecord
) -> None:
    with wiring.run_dir(run):
        said = cli("up", *SMALL, "--yes")
    assert said.code == 2
    assert "hexcloud attach main-1" in said.err
    assert store.runs() == (run,)


def test_only_a_known_run_is_resumed(cli: Callable[..., Any], store: SqliteStore) -> None:
    said = cli("up", "--resume", "nobody", "--yes")
    assert said.code == 2
    assert "'nobody' is unknown: main-1" in said.err
