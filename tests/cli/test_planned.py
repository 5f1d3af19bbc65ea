import pytest

from hexcloud import wiring
from hexcloud.adapters.markets.sky_optimizer import is_installed
from hexcloud.cli.planned import Planned, allocation_lines, make, plan_fields, spell_target
from hexcloud.domain.plan import Role
from hexcloud.domain.report import BaselineRow
from hexcloud.domain.run import RunSpec
from hexcloud.domain.target import parse_target
from hexcloud.planner.baselines import SKYPILOT


@pytest.fixture(scope="module")
def planned() -> Planned:
    return make(wiring.snapshot_input(RunSpec(cloud=("nebius",), target="10k")), "10k")


def test_the_trainer_comes_first_and_counts_are_of_machines(planned: Planned) -> None:
    lines = allocation_lines(planned.result.plan)
    assert [line.role for line in lines] == [Role.TRAINER, *[Role.ROLLOUT] * (len(lines) - 1)]
    assert sum(line.count for line in lines) == len(planned.result.plan.placement.slots)
    rent = planned.result.plan.allocation.rent_usd_per_hour
    assert sum(line.usd_per_hour for line in lines) == pytest.approx(rent)


def test_a_saving_is_of_the_rivals_price(planned: Planned) -> None:
    price = planned.result.plan.allocation.usd_per_hour
    assert planned.saving(BaselineRow(name="twice", usd_per_hour=2 * price)) == pytest.approx(0.5)
    assert planned.saving(BaselineRow(name="unable", usd_per_hour=None)) is None
    assert all((planned.saving(row) or 0.0) >= -1e-3 for row in planned.baselines)


def test_the_prices_are_as_old_as_the_snapshot(planned: Planned) -> None:
    assert str(plan_fields(planned)["as_of"]) == max(o.as_of for o in planned.given.market.offers).isoformat()


@pytest.mark.parametrize("asked", ["5 steps/min", "3 samples/s", "20k", "20k tok/s", None])
def test_a_target_is_spelt_in_the_unit_it_was_asked_in(planned: Planned, asked: str | None) -> None:
    workload = planned.given.workload
    samples_per_s = parse_target(asked or "20k", workload)
    spelt = spell_target(samples_per_s, workload, asked)
    assert parse_target(spelt, workload) == pytest.approx(samples_per_s, rel=1e-3)
    assert ("step" in spelt, "sample" in spelt) == ("step" in (asked or ""), "sample" in (asked or ""))


@pytest.mark.skipif(not is_installed(), reason="SkyPilot is not installed")
def test_skypilots_optimizer_is_one_of_the_buyers_where_it_is_installed() -> None:
    planned = make(wiring.snapshot_input(RunSpec(cloud=("nebius",), target="10k")), "10k", with_sky=True)
    (row,) = (row for row in planned.baselines if row.name == SKYPILOT)
    assert row.usd_per_hour is None or (planned.saving(row) or 0.0) >= -1e-3
