import io

import pytest
from rich.console import Console

from hexcloud import wiring
from hexcloud.cli.explained import (
    NOTABLE,
    change_in_words,
    explain_notable,
    price_rules,
    rules_fields,
    rules_in_short,
    rules_view,
)
from hexcloud.cli.planned import Planned, make
from hexcloud.domain.run import RunSpec
from hexcloud.planner.shadow import ShadowPrice


@pytest.fixture(scope="module")
def planned() -> Planned:
    spec = RunSpec(cloud=("nebius",), target="10k")
    return make(wiring.snapshot_input(spec), "10k", with_baselines=False)


def price(*rules: str, saves: float | None = 1.0) -> ShadowPrice:
    return ShadowPrice(rules=rules, meaning="m", change="c", saves_usd_per_hour=saves)


def test_every_binding_rule_is_priced_and_shown(planned: Planned, capsys: pytest.CaptureFixture[str]) -> None:
    prices = price_rules(planned)
    binding = planned.result.plan.allocation.proof.binding
    assert sorted(rule for one in prices for rule in one.rules) == sorted(binding)
    assert "binding rules" in capsys.readouterr().err
    out = io.StringIO()
    console = Console(width=120, file=out)
    console.print(rules_view(prices))
    text = out.getvalue()
    assert all(one.change.split(" (")[0] in text for one in prices)


def test_many_failure_domains_are_one_name() -> None:
    assert rules_in_short(("survive[a]", "pools", "survive[b]")) == "pools, survive[...] x 2"
    assert rules_in_short(("train_rate", "survive[a]")) == "train_rate, survive[a]"


def test_a_change_is_told_in_dollars() -> None:
    assert change_in_words(price("stock[x]", saves=1.239)) == "saves 1.24 USD/h"
    assert change_in_words(price("hourly_budget", saves=-2.0)) == "costs 2.00 USD/h more"
    assert change_in_words(price("pools", saves=None)) == "no plan"
    assert rules_fields((price("pools", saves=None),))[0]["saves_usd_per_hour"] is None


def test_notable_types_are_explained_and_are_not_in_the_plan(
    planned: Planned, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = explain_notable(planned)
    held = {slot.offer_id for slot in planned.result.plan.placement.slots}
    assert 0 < len(answers) <= NOTABLE
    assert all(answer.offer_id not in held and answer.reason for answer in answers)
    assert capsys.readouterr().err.count("asking why not") == len(answers)
