import json
import re
from collections.abc import Callable
from typing import Any

import pytest


def test_a_budget_shows_the_whole_run_and_refuses_what_it_does_not_pay(cli: Callable[..., Any]) -> None:
    asked = ("plan", "--cloud", "nebius", "--target-throughput", "10k", "--steps", "100")
    said = cli(*asked, "--budget", "500", "--json")
    assert said.code == 0
    run = json.loads(said.out)["whole_run"]
    assert (run["samples"], run["budget_usd"]) == (25_600, 500.0)
    assert run["usd"] == pytest.approx(run["hours"] * json.loads(said.out)["cost_usd_per_hour"])
    half = cli(*asked, "--budget", f"{run['usd'] / 2:.2f}")
    assert half.code == 1
    line = next(line for line in half.out.splitlines() if line.startswith("whole run"))
    assert f"{run['usd']:.2f} USD of {run['usd'] / 2:.2f} for 25600 samples" in line
    assert "the budget ends it after 50% of them" in line
    assert f"the run costs {run['usd']:.2f} USD (" in half.err
    assert re.search(r"raise --budget, or train fewer --steps: (49|50) of 100$", half.err.strip())
    poor = cli(*asked, "--budget", "0.01", "--json")
    error = json.loads(poor.out)["error"]
    assert (poor.code, error["type"]) == (1, "BudgetError")
    assert error["least_usd"] == pytest.approx(run["usd"], rel=1e-6)


def test_a_budget_with_which_up_would_not_begin_is_refused_in_its_words(cli: Callable[..., Any]) -> None:
    """One step is cheap, and its machines must start and end all the same."""
    said = cli("plan", "--cloud", "nebius", "--target-throughput", "10k", "--steps", "1", "--budget", "0.45")
    assert said.code == 1
    assert "budget 0.45 USD buys nothing useful: start-up, a checkpoint and teardown" in said.err
