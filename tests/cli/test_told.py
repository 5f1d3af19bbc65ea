import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ASK = ("plan", "--cloud", "nebius", "--target-throughput", "10k")


FLEET = """
machines:
  - {name: big, gpu: H100, gpu_count: 8, network_gb_per_s: 50, count: 3}
  - {name: old, gpu: T4, gpu_count: 4, network_gb_per_s: 3}
links:
  - {source: "big#1", target: "big#3", gb_per_s: 45}
  - {source: "big#2", target: big, gb_per_s: 4}
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET)
    return path


def test_what_one_machine_more_is_worth_is_told_of_ones_own_fleet(cli: Callable[..., Any], fleet: Path) -> None:
    said = cli("plan", "--fleet", str(fleet), "--explain")
    assert said.code == 0
    assert "stock[own/home/home/big/on_demand]" in said.out
    assert " tok/s per machine" in said.out


def test_a_report_of_ones_own_fleet_has_no_dollars_nobody_named(
    cli: Callable[..., Any], fleet: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    page = tmp_path / "plan.html"
    assert cli("plan", "--fleet", str(fleet), "--html", str(page)).code == 0
    assert "Cost against throughput" not in page.read_text()
    assert "What holds it where it is" in page.read_text()
    fleet.write_text(FLEET.replace("network_gb_per_s", "usd_per_hour: 12, network_gb_per_s"))
    assert cli("plan", "--fleet", str(fleet), "--html", str(page)).code == 0
    assert "Cost against throughput" in page.read_text()


def test_a_frontier_in_dollars_wants_prices(cli: Callable[..., Any], fleet: Path, tmp_path: Path) -> None:
    said = cli("plan", "--fleet", str(fleet), "--frontier", str(tmp_path / "a.png"))
    assert (said.code, said.out) == (2, "")
    assert "give each machine its usd_per_hour; without one: big, old" in said.err


@pytest.mark.parametrize(
    ("pattern", "kind", "reason"),
    [
        ("old", "refused", "old: T4 has no bf16"),
        ("H100", "chosen", "big: "),
        ("*", "chosen", "no bf16; big: "),
    ],
)
def test_why_not_speaks_of_the_fleets_machines(
    cli: Callable[..., Any], fleet: Path, pattern: str, kind: str, reason: str
) -> None:
    why = json.loads(cli("plan", "--fleet", str(fleet), "--why", pattern, "--json").out)["why"]
    assert why["kind"] == kind
    assert reason in why["reason"]


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
