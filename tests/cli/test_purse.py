import json
from collections.abc import Callable
from typing import Any

import pytest


def test_a_budget_shows_the_whole_run_and_how_much_of_it_is_paid(cli: Callable[..., Any]) -> None:
    asked = ("plan", "--cloud", "nebius", "--target-throughput", "10k", "--steps", "100")
    said = cli(*asked, "--budget", "500", "--json")
    assert said.code == 0
    run = json.loads(said.out)["whole_run"]
    assert (run["samples"], run["budget_usd"]) == (25_600, 500.0)
    assert run["usd"] == pytest.approx(run["hours"] * json.loads(said.out)["cost_usd_per_hour"])
    half = cli(*asked, "--budget", f"{run['usd'] / 2:.2f}")
    assert half.code == 0
    line = next(line for line in half.out.splitlines() if line.startswith("whole run"))
    assert f"{run['usd']:.2f} USD of {run['usd'] / 2:.2f} for 25600 samples" in line
    assert "the budget ends it after 50% of them" in line
