import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hexcloud import wiring
from hexcloud.cli.clashed import in_users_words, of_own_fleet, spell_target
from hexcloud.domain.errors import InfeasibleError
from hexcloud.domain.market import Quota
from hexcloud.domain.run import RunSpec
from hexcloud.domain.target import parse_target


@pytest.mark.parametrize("asked", ["5 steps/min", "3 samples/s", "20k", "20k tok/s", None])
def test_a_target_is_spelt_in_the_unit_it_was_asked_in(asked: str | None) -> None:
    workload = wiring.workload_of(RunSpec())
    samples_per_s = parse_target(asked or "20k", workload)
    spelt = spell_target(samples_per_s, workload, asked)
    assert parse_target(spelt, workload) == pytest.approx(samples_per_s, rel=1e-3)
    assert ("step" in spelt, "sample" in spelt) == ("step" in (asked or ""), "sample" in (asked or ""))


def test_a_cap_under_every_plan_is_the_only_rule_that_clashes(cli: Callable[..., Any]) -> None:
    error = json.loads(cli("plan", "--target-throughput", "20k", "--max-usd-per-hour", "1", "--json").out)["error"]
    assert error["rules"] == ["hourly_budget"]
    assert error["clash"][0]["mend"] == "raise --max-usd-per-hour"


def test_each_rule_has_a_line_with_what_it_demands_whom_it_turns_away_and_what_can_be_changed() -> None:
    given = wiring.snapshot_input(RunSpec(cloud=("nebius",), target="10k"))
    offers = tuple(offer.model_copy(update={"quota": "GPUS", "quota_units": 8.0}) for offer in given.market.offers)
    market = given.market.model_copy(update={"offers": offers, "quotas": (Quota(key="GPUS", left=0.0),)})
    told = str(in_users_words(InfeasibleError("none", ("quota[GPUS]",)), replace(given, market=market), "10k"))
    row = next(row for row in told.splitlines() if row.startswith("  quota[GPUS]: "))
    assert "offers turned away" in row
    assert "ask the cloud for more of it" in row


def test_no_rule_of_a_policy_is_to_blame_among_ones_own_machines() -> None:
    told = of_own_fleet(InfeasibleError("the fleet is too small"))
    assert str(told) == "the fleet is too small"
    assert told.fields["nearest_target"] is None
