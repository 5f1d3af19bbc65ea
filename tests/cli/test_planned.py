from dataclasses import replace
from datetime import timedelta
from io import StringIO

import pytest
from rich.console import Console

from hexcloud import wiring
from hexcloud.adapters.markets.sky_optimizer import is_installed
from hexcloud.cli.planned import Planned, allocation_lines, make, plan_fields, plan_view
from hexcloud.domain.offer import Offer
from hexcloud.domain.plan import Role
from hexcloud.domain.report import BaselineRow
from hexcloud.domain.run import RunSpec
from hexcloud.domain.training import LayoutKind
from hexcloud.planner.baselines import SKYPILOT


@pytest.fixture(scope="module")
def planned() -> Planned:
    return make(wiring.snapshot_input(RunSpec(cloud=("nebius",), target="10k")), "10k")


def test_the_trainer_comes_first_and_counts_are_of_machines(planned: Planned) -> None:
    lines = allocation_lines(planned.result.plan)
    assert [line.role for line in lines] == [Role.TRAINER, *[Role.ROLLOUT] * (len(lines) - 1)]
    assert sum(line.count for line in lines) == len(planned.result.plan.placement.slots)
    rent = planned.result.plan.allocation.rent_usd_per_hour
    assert sum(line.total_usd_per_hour for line in lines) == pytest.approx(rent)


def test_a_saving_is_of_the_rivals_price(planned: Planned) -> None:
    price = planned.result.plan.allocation.usd_per_hour
    assert planned.saving(BaselineRow(name="twice", usd_per_hour=2 * price)) == pytest.approx(0.5)
    assert planned.saving(BaselineRow(name="unable", usd_per_hour=None)) is None
    assert all((planned.saving(row) or 0.0) >= -1e-3 for row in planned.baselines)


def test_a_plan_is_as_old_as_its_own_prices_whatever_else_the_market_lists(planned: Planned) -> None:
    rented = {slot.offer_id for slot in planned.result.plan.placement.slots}
    market, today = planned.given.market, planned.given.market.as_of
    others = (o.model_copy(update={"as_of": today}) for o in market.offers if o.id not in rented)
    fresh = market.model_copy(update={"offers": (*planned.offers.values(), *others)})
    beside = replace(planned, given=replace(planned.given, market=fresh))
    ages = {offer.as_of for offer in market.offers if offer.id in rented}
    assert max(ages) < today
    for one in (planned, beside):
        fields = plan_fields(one)
        assert (fields["oldest_as_of"], fields["newest_as_of"]) == (min(ages).isoformat(), max(ages).isoformat())


def test_an_old_price_is_told_in_its_row_and_in_the_heading_and_one_of_today_is_not(planned: Planned) -> None:
    today = planned.given.market.as_of
    first, *rest = planned.offers.values()
    old = first.model_copy(update={"as_of": today - timedelta(days=40)})
    new = tuple(offer.model_copy(update={"as_of": today - timedelta(hours=2)}) for offer in rest)
    assert new, "the plan rents more than one offer"
    said = told(planned, (old, *new))
    (row,) = (line for line in said.splitlines() if "40 days" in line)
    assert f"│ {old.id} " in row
    assert "price age" in said and " 2 h " not in said
    assert f"Plan at prices of {today - timedelta(days=40):%Y-%m-%d} to " in said
    assert "price age" not in told(planned, (first.model_copy(update={"as_of": today}), *new))


def test_expected_losses_are_among_the_parts_of_the_price_where_there_are_some(planned: Planned) -> None:
    assert "expected losses" not in told(planned, ())
    plan = planned.result.plan
    allocation = plan.allocation.model_copy(update={"risk_usd_per_hour": 0.25})
    result = planned.result.model_copy(update={"plan": plan.model_copy(update={"allocation": allocation})})
    assert ", expected losses 0.25)" in told(replace(planned, result=result), ())


def test_the_layout_of_the_gang_is_told_where_it_has_several_gpus(planned: Planned) -> None:
    column = planned.result.plan.allocation.trainer.column
    assert column.layout.ranks > 1
    assert plan_fields(planned)["trainer_layout"] == column.layout.model_dump(mode="json")
    shown = f"trainer     {column.layout.kind} over {column.layout.ranks} GPUs of {column.nodes} machine"
    assert shown in told(planned, ()) and "as asked" not in told(planned, ())
    pinned = planned.given.workload.model_copy(update={"layouts": (LayoutKind(column.layout.kind),)})
    assert "as asked" in told(replace(planned, given=replace(planned.given, workload=pinned)), ())


def told(planned: Planned, rented: tuple[Offer, ...]) -> str:
    """Return what a reader sees of a plan whose offers are of other days."""
    changed = {offer.id: offer for offer in rented}
    offers = tuple(changed.get(offer.id, offer) for offer in planned.given.market.offers)
    market = planned.given.market.model_copy(update={"offers": offers})
    shown = Console(width=160, file=StringIO(), record=True)
    shown.print(plan_view(replace(planned, given=replace(planned.given, market=market))))
    return shown.export_text()


@pytest.mark.skipif(not is_installed(), reason="SkyPilot is not installed")
def test_skypilots_optimizer_is_one_of_the_buyers_where_it_is_installed() -> None:
    planned = make(wiring.snapshot_input(RunSpec(cloud=("nebius",), target="10k")), "10k", with_sky=True)
    (row,) = (row for row in planned.baselines if row.name == SKYPILOT)
    assert row.usd_per_hour is None or (planned.saving(row) or 0.0) >= -1e-3
