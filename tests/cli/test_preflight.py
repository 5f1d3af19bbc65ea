import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHECKS = ["python", "libraries", "catalogs", "solver", "store", "memory", "disk", "network"]


def test_every_check_says_what_it_found(cli: Callable[..., Any]) -> None:
    said = cli("preflight", "--json")
    answer = json.loads(said.out)
    assert [check["name"] for check in answer["checks"]] == CHECKS
    assert said.code == (0 if answer["ok"] else 1)
    found = {check["name"]: check for check in answer["checks"]}
    assert found["catalogs"]["ok"]
    assert "offers of 202" in found["catalogs"]["found"], "the days of the oldest and the newest price"
    assert "USD/h" in found["solver"]["found"]


def test_what_would_go_wrong_is_said_and_exits_1(cli: Callable[..., Any], home: Path) -> None:
    home.parent.mkdir(exist_ok=True)
    home.write_text("a file where the store's folder should be")
    said = cli("preflight")
    assert said.code == 1
    assert "FAIL store" in said.out
