import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hexcloud import wiring

KEYS = {
    "cost_usd_per_hour",
    "rent_usd_per_hour",
    "egress_usd_per_hour",
    "one_off_usd_per_hour",
    "risk_usd_per_hour",
    "lower_bound_usd_per_hour",
    "gap",
    "throughput_tokens_per_s",
    "target_tokens_per_s",
    "trainer_layout",
    "allocation",
    "baselines",
    "rejected",
    "solve_s",
    "oldest_as_of",
    "newest_as_of",
}
LINE_KEYS = {"offer", "role", "count", "usd_per_hour", "total_usd_per_hour", "as_of", "source"}


def test_stdout_is_json_and_nothing_else() -> None:
    argv = [sys.executable, "-m", "hexcloud.cli", "plan", "--cloud", "nebius", "--target-throughput", "10k", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    assert set(answer) == KEYS
    assert answer["lower_bound_usd_per_hour"] <= answer["cost_usd_per_hour"]
    assert answer["throughput_tokens_per_s"] >= answer["target_tokens_per_s"] == 10_000
    assert {row["role"] for row in answer["allocation"]} == {"trainer", "rollout"}
    assert set(answer["trainer_layout"]) == {"kind", "ranks", "pass_tokens"}
    assert all(set(row) == LINE_KEYS for row in answer["allocation"])
    assert all(set(row) == {"name", "usd_per_hour", "reason"} for row in answer["baselines"])
    assert all(set(row) == {"reason", "count"} for row in answer["rejected"])


def test_the_total_can_be_added_up_from_json(cli: Callable[..., Any]) -> None:
    answer = json.loads(cli("plan", "--target-throughput", "150k", "--json").out)
    rows = answer["allocation"]
    assert max(row["count"] for row in rows) > 1
    for row in rows:
        assert row["total_usd_per_hour"] == pytest.approx(row["count"] * row["usd_per_hour"])
    assert answer["rent_usd_per_hour"] == pytest.approx(sum(row["total_usd_per_hour"] for row in rows))
    parts = [answer[f"{part}_usd_per_hour"] for part in ("rent", "egress", "one_off", "risk")]
    assert answer["cost_usd_per_hour"] == pytest.approx(sum(parts))


def test_each_price_in_json_has_its_source_and_its_day(cli: Callable[..., Any]) -> None:
    answer = json.loads(cli("plan", "--target-throughput", "150k", "--json").out)
    listed = {offer.id: offer for offer in wiring.believed_market().market(time.time()).offers}
    for row in answer["allocation"]:
        offer = listed[row["offer"]]
        assert (row["source"], row["as_of"]) == (offer.source, offer.as_of.isoformat())
    days = [row["as_of"] for row in answer["allocation"]]
    assert (answer["oldest_as_of"], answer["newest_as_of"]) == (min(days), max(days))


def test_a_reader_sees_machines_price_and_rivals(cli: Callable[..., Any]) -> None:
    said = cli("plan", "--cloud", "nebius", "--target-throughput", "10k")
    assert said.code == 0
    for word in (
        "trainer",
        "rollout",
        "USD/h",
        "no plan is under",
        "simpler buyers",
        "--why OFFER",
        "held by",
        "--explain",
    ):
        assert word in said.out


def test_an_infeasible_target_names_rows_and_the_nearest_in_the_users_unit(cli: Callable[..., Any]) -> None:
    said = cli("plan", "--cloud", "nebius", "--target-throughput", "1e9 steps/min")
    assert said.code == 1
    assert "no plan makes 1e+09 steps/min" in said.err
    assert "train_rate: " in said.err
    assert " steps/min for " in said.err.splitlines()[-1]


def test_an_infeasible_target_is_json_too(cli: Callable[..., Any]) -> None:
    said = cli("plan", "--cloud", "nebius", "--target-throughput", "1e9 samples/s", "--json")
    error = json.loads(said.out)["error"]
    assert said.code == 1
    assert error["type"] == "InfeasibleError"
    assert "train_rate" in error["rules"]
    assert error["nearest_target"].endswith(" samples/s")
    assert error["nearest_tokens_per_s"] > 0


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("--policy", "chepest"), "cheapest"),
        (("--model", "Qwen2.5-7"), "Qwen2.5-7B"),
        (("--target-throughput", "fast"), "5 steps/min"),
    ],
)
def test_wrong_input_says_what_was_meant(cli: Callable[..., Any], arguments: tuple[str, ...], meant: str) -> None:
    said = cli("plan", *arguments)
    assert said.code == 2
    assert meant in said.err


def test_a_plan_for_ones_own_machines(cli: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("- {name: big, gpu: H100, gpu_count: 8, network_gb_per_s: 50, count: 2}\n")
    said = cli("plan", "--fleet", str(file), "--json")
    answer = json.loads(said.out)
    assert said.code == 0
    assert answer["throughput_tokens_per_s"] > 0
    assert all("big" in row["offer"] for row in answer["allocation"])
    assert {*answer["ranks"], *(route["target"] for route in answer["routes"])} <= {"big#1", "big#2"}


@pytest.mark.parametrize(
    ("pattern", "meant"), [("nonsense", "no such GPU"), ("", "an empty name"), ("H10", "did you mean H100?")]
)
def test_why_of_a_name_that_nothing_has_is_wrong_input(cli: Callable[..., Any], pattern: str, meant: str) -> None:
    said = cli("plan", "--why", pattern)
    assert (said.code, said.out) == (2, "")
    assert meant in said.err


def test_why_of_a_gpu_is_about_its_offers(cli: Callable[..., Any]) -> None:
    said = cli("plan", "--cloud", "nebius", "--target-throughput", "10k", "--why", "b200")
    assert said.code == 0
    assert "why not b200: nebius/" in said.out
    assert "simpler buyers" not in said.out, "who asks about one offer waits for no rivals"


@pytest.mark.parametrize("target", ["1e-3", "1"])
def test_the_smallest_target_is_still_rolled_out(cli: Callable[..., Any], target: str) -> None:
    answer = json.loads(cli("plan", "--cloud", "nebius", "--target-throughput", target, "--json").out)
    assert {row["role"] for row in answer["allocation"]} == {"trainer", "rollout"}


def test_a_cap_under_every_plan_names_the_least_price_and_each_rule_once(cli: Callable[..., Any]) -> None:
    said = cli("plan", "--cloud", "nebius", "--max-usd-per-hour", "0.5")
    assert said.code == 1
    assert "hourly_budget: " in said.err
    assert said.err.count("survive[") <= 2, "rules that differ only in the domain are one line"
    assert "the least that any plan costs is " in said.err


def test_a_whole_run_for_a_budget_says_what_it_costs_and_what_it_would(cli: Callable[..., Any]) -> None:
    thrifty = ("plan", "--cloud", "nebius", "--policy", "thrifty", "--steps", "10")
    said = cli(*thrifty, "--budget", "500")
    assert said.code == 0
    line = next(line for line in said.out.splitlines() if line.startswith("whole run"))
    least_usd = float(line.split()[2])
    assert line.endswith(" h") and "USD of 500.00 for 2560 samples" in line
    poor = cli(*thrifty, "--budget", f"{least_usd * 0.9:.2f}")
    assert poor.code == 1
    assert "raise --budget" in poor.err
    told_usd = float(poor.err.split("at least ")[1].split()[0])
    assert told_usd == pytest.approx(least_usd, rel=0.01)


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("budget: .inf", "budget"),
        ("max_usd_per_hour: .inf", "max_usd_per_hour"),
        ("response_tokens: .inf", "response_tokens"),
        ("prompt_tokens: .inf", "prompt_tokens"),
        ("prompt_tokens: 1.0e+300", "prompt_tokens"),
        ("response_tokens: .nan", "response_tokens"),
    ],
)
def test_figures_that_are_none_are_refused_by_file_and_field(
    cli: Callable[..., Any], tmp_path: Path, line: str, field: str
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(line)
    said = cli("plan", "--run", str(file))
    assert said.code == 2
    assert f"{file}: {field} is " in said.err
    assert "must be a finite number" in said.err or "must be less than" in said.err


def test_options_without_end_are_refused_by_name(cli: Callable[..., Any]) -> None:
    for option in ("--max-usd-per-hour", "--budget"):
        said = cli("plan", option, "inf")
        assert said.code == 2
        assert f"{option} inf: must be a finite number; leave it out" in said.err
