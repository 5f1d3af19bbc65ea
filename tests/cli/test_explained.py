import io

import pytest
from rich.console import Console

from hexcloud import wiring
from hexcloud.cli.explained import (
    NOTABLE,
    explain_notable,
    gain_in_words,
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


def price(rule: str, gain: float | None, gain_unit: str = "USD/h", unit: str = "machine") -> ShadowPrice:
    fields = {"gain_per_unit": gain, "gain_unit": gain_unit, "unit": unit}
    return ShadowPrice.model_validate({"rule": rule, "meaning": "m", "change": "c", "step": 1.0} | fields)


def test_every_binding_rule_is_priced_and_shown(planned: Planned, capsys: pytest.CaptureFixture[str]) -> None:
    prices = price_rules(planned)
    binding = planned.result.plan.allocation.proof.binding
    assert {one.rule for one in prices} >= set(binding)
    assert "binding rules" in capsys.readouterr().err
    out = io.StringIO()
    console = Console(width=240, file=out, markup=False)
    console.print(rules_view(prices))
    text = out.getvalue()
    assert all(one.rule in text and one.change in text for one in prices)


def test_failure_domains_are_named_and_of_many_the_others_counted() -> None:
    assert rules_in_short(("survive[a]", "pools", "survive[b]")) == "pools, survive[a], survive[b]"
    many = tuple(f"survive[{name}]" for name in "abcdef")
    assert rules_in_short(many) == "survive[a], survive[b], survive[c], survive[d], 2 more domains"


def test_a_gain_is_told_in_its_units() -> None:
    assert gain_in_words(price("stock[x]", 1.239)) == "1.24 USD/h per machine"
    assert gain_in_words(price("quota[x]", 0.00123, unit="unit")) == "0.00123 USD/h per unit"
    assert gain_in_words(price("hourly_budget", 812.4, "tok/s", "USD/h")) == "812 tok/s per USD/h"
    assert gain_in_words(price("pools", None)) == "no plan"
    assert rules_fields((price("pools", None),))[0]["gain_per_unit"] is None


def test_notable_types_are_explained_and_are_not_in_the_plan(
    planned: Planned, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = explain_notable(planned)
    held = {slot.offer_id for slot in planned.result.plan.placement.slots}
    assert 0 < len(answers) <= NOTABLE
    assert all(answer.offer_id not in held and answer.reason for answer in answers)
    assert capsys.readouterr().err.count("asking why not") == len(answers)
