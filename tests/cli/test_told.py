import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hexcloud.cli.told import Wanted
from hexcloud.domain.errors import ConfigError

ASK = ("plan", "--cloud", "nebius", "--target-throughput", "10k")


@pytest.mark.parametrize("option", ["--why", "--explain", "--frontier", "--html"])
def test_questions_about_the_market_have_no_answer_for_ones_own_machines(option: str) -> None:
    asked: dict[str, Any] = {"why": "H100", "explain": True, "frontier": Path("a.png"), "html": Path("a.html")}
    name = option.removeprefix("--")
    with pytest.raises(ConfigError, match=f"{option} asks about the market"):
        Wanted(**{name: asked[name]}).require_possible(is_own_fleet=True)


def test_nothing_asked_nothing_told(cli: Callable[..., Any]) -> None:
    assert "What holds the plan" not in cli(*ASK).out


def test_explain_prices_the_binding_rules(cli: Callable[..., Any]) -> None:
    said = cli(*ASK, "--explain")
    assert said.code == 0
    assert "What holds the plan where it is" in said.out
    assert "train_rate" in said.out and "1000 tok/s less to train" in said.out


def test_picture_and_page_are_written_and_json_stays_clean(cli: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture, page = tmp_path / "frontier.png", tmp_path / "plan.html"
    said = cli(*ASK, "--frontier", str(picture), "--html", str(page), "--why", "B200", "--json")
    answer = json.loads(said.out)
    assert said.code == 0
    assert "frontier 8/8" in said.err
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "data:image/png;base64," in page.read_text()
    assert {row["rule"] for row in answer["binding"]} and answer["why"]["pattern"] == "B200"
    assert answer["frontier"][3]["usd_per_hour"]["the plan"] == answer["cost_usd_per_hour"]


def test_a_wrong_file_is_told_before_anything_is_solved(cli: Callable[..., Any], tmp_path: Path) -> None:
    said = cli(*ASK, "--frontier", str(tmp_path / "a.svg"))
    assert (said.code, said.out) == (2, "")
    assert "ends in .png" in said.err
