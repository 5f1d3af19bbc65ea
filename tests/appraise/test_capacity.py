from collections.abc import Callable

import pytest

from hexcloud.appraise.capacity import OnDemand, unproven
from hexcloud.appraise.gate import gate, offers_of
from hexcloud.appraise.known import Known, Seen
from hexcloud.appraise.witness import Witnesses
from hexcloud.domain.market import Outcome
from hexcloud.domain.row import Row

MakeRow = Callable[..., Row]


def rule(spot: Row, *on_demand: Row, known: Known | None = None) -> str | None:
    known = known or Known()
    market = OnDemand([(row, row.price) for row in on_demand], known, Witnesses(known))
    doubt = market.over(spot, spot.price) or unproven(spot, spot.price, market)
    return doubt.rule if doubt else None


def seen(**odd: object) -> Known:
    said = {"cloud": "aws", "region": "us-east-1", "instance_type": "big", "tenure": "on_demand", "lineage": "other"}
    return Known(seen=(Seen.model_validate({**said, "gpu_count": 8, "usd_per_hour": 40.0, **odd}),))


@pytest.mark.parametrize(
    ("price", "name"),
    [
        (41.0, "spot_over_on_demand"),
        (40.05, "spot_over_on_demand"),
        (40.02, "spot_equals_on_demand"),
        (40.0, "spot_equals_on_demand"),
        (39.9, None),
        (14.0, None),
        (4.9, None),
        (4.0, "floor_price"),
    ],
)
def test_spot_is_held_against_the_machines_own_on_demand_price(row: MakeRow, price: float, name: str | None) -> None:
    assert rule(row(tenure="spot", price=price, zone="b"), row()) == name


def test_the_dearest_on_demand_price_of_the_region_counts(row: MakeRow) -> None:
    assert rule(row(tenure="spot", price=41.0), row(), row(zone="b", price=44.0)) is None


def test_a_lone_floor_price_is_measured_by_the_regions_other_machines(row: MakeRow) -> None:
    assert rule(row(tenure="spot", price=4.0), row(instance_type="other", price=80.0, gpu_count=16)) == "floor_price"
    assert rule(row(tenure="spot", price=6.0), row(instance_type="other", price=80.0, gpu_count=16)) is None


def test_a_floor_price_in_an_empty_region_is_measured_by_the_cloud(row: MakeRow) -> None:
    assert rule(row(region="moon", tenure="spot", price=3.6), row()) == "floor_price"
    assert rule(row(cloud="gcp", tenure="spot", price=3.6), row()) is None


def test_a_floor_price_is_measured_by_what_another_source_says_of_the_machine(row: MakeRow) -> None:
    spot = row(tenure="spot", price=4.0)
    assert rule(spot, known=seen()) == "floor_price"
    assert rule(spot, known=seen(region="moon")) == "floor_price"
    assert rule(spot, known=seen(instance_type="small")) is None
    assert rule(spot, known=seen(tenure="spot")) is None
    assert rule(spot, known=seen(usd_per_hour=float("inf"))) is None
    assert rule(spot, known=seen(is_believed=False)) is None


def test_a_floor_price_that_nobody_else_can_measure_is_measured_by_what_such_gpus_usually_cost(
    row: MakeRow, known: Known
) -> None:
    assert rule(row(cloud="shop", tenure="spot", price=0.4), known=known) == "floor_price"
    assert rule(row(cloud="shop", tenure="spot", price=4.79), known=known) == "floor_price"
    assert rule(row(cloud="shop", tenure="spot", price=4.81), known=known) is None
    assert rule(row(cloud="shop", gpu="Q9", tenure="spot", price=0.4), known=known) is None
    assert rule(row(tenure="spot", price=3.0), row(price=20.0), known=known) is None, "its own price comes first"
    (belief,) = gate([row(cloud="shop", tenure="spot", price=0.5)], known)
    assert (belief.outcome, belief.rule) == (Outcome.FLAG, "floor_price"), "true perhaps, and nothing to plan on"
    assert not offers_of([belief])[0].proven


def test_an_old_on_demand_price_of_another_source_rejects_nothing(row: MakeRow) -> None:
    assert rule(row(tenure="spot", price=44.0), known=seen()) is None


def test_a_region_that_does_not_have_the_machine_is_unproven_on_demand_too(row: MakeRow) -> None:
    assert rule(row(listed=False)) == "not_listed"
    assert rule(row(listed=True)) is None
    assert rule(row(listed=None)) is None


@pytest.mark.parametrize(("score", "name"), [(1, "low_placement_score"), (2, "low_placement_score"), (3, None)])
def test_a_low_placement_score_leaves_spot_unproven(row: MakeRow, score: int, name: str | None) -> None:
    assert rule(row(tenure="spot", price=14.0, placement_score=score), row()) == name


def test_a_score_that_is_none_says_nothing(row: MakeRow, known: Known) -> None:
    spot = row(tenure="spot", price=14.0, placement_score=0)
    assert rule(spot, row()) is None
    assert offers_of(gate([spot], known))[0].placement_score is None


@pytest.mark.parametrize("bad", [{"price": 0.0}, {"gpu_count": 12}, {"missing": "8 x H100"}, {"price": 0.4}])
def test_a_refused_on_demand_row_measures_nothing(row: MakeRow, known: Known, bad: dict[str, object]) -> None:
    spot = row(tenure="spot", price=14.0)
    outcomes = {belief.row.tenure: belief.outcome for belief in gate([spot, row(**bad)], known)}
    assert outcomes["spot"] is Outcome.ACCEPT
    assert outcomes["on_demand"] in {Outcome.REJECT, Outcome.QUARANTINE}


def test_a_flag_is_believed_but_unproven_until_a_launch_has_succeeded(row: MakeRow, known: Known) -> None:
    rows = [row(), row(tenure="spot", price=4.0)]
    assert [(offer.tenure.value, offer.proven) for offer in offers_of(gate(rows, known))] == [
        ("on_demand", True),
        ("spot", False),
    ]
    known = known.model_copy(update={"proven": frozenset({rows[1].id})})
    assert all(offer.proven for offer in offers_of(gate(rows, known)))
    assert all(belief.outcome is Outcome.ACCEPT for belief in gate(rows, known))
