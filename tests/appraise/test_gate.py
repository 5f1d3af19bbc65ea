import math
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hexcloud.appraise.gate import GPU_COUNTS, Believed, gate
from hexcloud.appraise.row import Row
from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.market import Outcome

MakeRow = Callable[..., Row]
Gpus = dict[str, GpuSpec]
AnyRow = st.SearchStrategy[Row]
fast = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def outcomes(believed: Believed) -> list[tuple[str, Outcome]]:
    return [(finding.field, finding.outcome) for finding in believed.findings]


def test_a_sound_row_becomes_an_offer_and_says_nothing(row: MakeRow, gpus: Gpus) -> None:
    believed = gate([row()], gpus)
    assert believed.findings == ()
    (offer,) = believed.offers
    assert (offer.id, offer.usd_per_hour, offer.proven) == (row().id, 40.0, True)


@pytest.mark.parametrize(
    ("field", "odd"),
    [
        ("price", {"price": 0.0}),
        ("price", {"price": -3.0}),
        ("price", {"price": math.nan}),
        ("price", {"price": math.inf}),
        ("currency", {"currency": "CNY"}),
        ("gpu", {"gpu": "Q9"}),
        ("gpu_count", {"gpu_count": 0}),
        ("gpu_count", {"gpu_count": 2.5}),
        ("gpu_count", {"gpu_count": math.nan}),
        ("tenure", {"tenure": "loan"}),
        ("as_of", {"as_of": "soon"}),
        ("network_gb_per_s", {"network_gb_per_s": 0.0}),
        ("memory_gib", {"memory_gib": math.nan}),
    ],
)
def test_what_cannot_be_true_is_rejected(row: MakeRow, gpus: Gpus, field: str, odd: dict[str, object]) -> None:
    believed = gate([row(**odd)], gpus)
    assert believed.offers == ()
    assert outcomes(believed) == [(field, Outcome.REJECT)]


@pytest.mark.parametrize("count", [3, 6, 12, 17, 256])
def test_gpu_counts_that_no_machine_has_wait_for_a_second_source(row: MakeRow, gpus: Gpus, count: int) -> None:
    believed = gate([row(gpu_count=count)], gpus)
    assert believed.offers == ()
    assert outcomes(believed) == [("gpu_count", Outcome.QUARANTINE)]


def test_spot_over_the_machines_own_on_demand_price_is_rejected(row: MakeRow, gpus: Gpus) -> None:
    believed = gate([row(), row(tenure="spot", zone="b", price=41.0)], gpus)
    assert [offer.tenure for offer in believed.offers] == ["on_demand"]
    assert outcomes(believed) == [("price", Outcome.REJECT)]


@pytest.mark.parametrize("price", [4.0, 40.0, 40.02])
def test_spot_at_a_floor_or_the_full_price_is_believed_but_unproven(row: MakeRow, gpus: Gpus, price: float) -> None:
    believed = gate([row(), row(tenure="spot", price=price)], gpus)
    assert outcomes(believed) == [("price", Outcome.FLAG)]
    assert [offer.proven for offer in believed.offers] == [True, False]


def test_an_ordinary_spot_price_is_proven(row: MakeRow, gpus: Gpus) -> None:
    believed = gate([row(), row(tenure="spot", price=14.0)], gpus)
    assert believed.findings == ()
    assert all(offer.proven for offer in believed.offers)


def test_each_market_stands_alone(row: MakeRow, gpus: Gpus) -> None:
    assert len(gate([row(tenure="spot", price=14.0)], gpus).offers) == 1
    assert gate([row(price=math.nan), row(tenure="spot", price=14.0)], gpus).offers[0].tenure == "spot"


def test_a_lone_floor_price_is_measured_by_the_regions_other_machines(row: MakeRow, gpus: Gpus) -> None:
    twin = row(instance_type="other", price=80.0)
    believed = gate([twin, row(tenure="spot", price=8.0)], gpus)
    assert outcomes(believed) == [("price", Outcome.FLAG)]


def test_a_floor_price_in_an_empty_region_is_measured_by_the_cloud(row: MakeRow, gpus: Gpus) -> None:
    believed = gate([row(), row(region="moon", tenure="spot", price=3.6)], gpus)
    assert outcomes(believed) == [("price", Outcome.FLAG)]


def test_a_price_far_under_what_the_gpu_costs_elsewhere_is_quarantined(row: MakeRow, gpus: Gpus) -> None:
    honest = [row(cloud=cloud) for cloud in ("aws", "gcp", "neo")]
    believed = gate([*honest, row(cloud="shop", price=0.08)], gpus)
    assert [offer.cloud for offer in believed.offers] == ["aws", "gcp", "neo"]
    assert outcomes(believed) == [("price", Outcome.QUARANTINE)]


def test_an_absurd_spot_price_without_an_on_demand_price_is_quarantined(row: MakeRow, gpus: Gpus) -> None:
    believed = gate([row(), row(cloud="shop", tenure="spot", price=0.08)], gpus)
    assert outcomes(believed) == [("price", Outcome.QUARANTINE)]


def test_too_dear_is_never_an_error(row: MakeRow, gpus: Gpus) -> None:
    believed = gate([row(), row(cloud="gcp"), row(cloud="shop", price=40_000.0)], gpus)
    assert believed.findings == ()
    assert len(believed.offers) == 3


def test_of_two_clouds_that_disagree_tenfold_the_cheaper_waits_for_a_third_voice(row: MakeRow, gpus: Gpus) -> None:
    two = [row(), row(cloud="shop", price=1.0)]
    assert [offer.cloud for offer in gate(two, gpus).offers] == ["aws"]
    assert len(gate([*two, row(cloud="gcp", price=4.0)], gpus).offers) == 3


@fast
@given(data=st.data())
def test_whatever_comes_in_only_true_looking_offers_come_out(any_row: AnyRow, gpus: Gpus, data: st.DataObject) -> None:
    believed = gate(data.draw(st.lists(any_row, max_size=12)), gpus)
    for offer in believed.offers:
        assert 0 < offer.usd_per_hour < math.inf
        assert offer.gpu in gpus
        assert offer.gpu_count in GPU_COUNTS


@fast
@given(data=st.data())
def test_every_row_is_believed_or_has_a_reason(any_row: AnyRow, gpus: Gpus, data: st.DataObject) -> None:
    rows = data.draw(st.lists(any_row, max_size=12))
    believed = gate(rows, gpus)
    refused = [finding for finding in believed.findings if finding.outcome is not Outcome.FLAG]
    assert len(believed.offers) + len(refused) == len(rows)
    assert all(finding.reason for finding in believed.findings)


@fast
@given(data=st.data())
def test_the_order_of_rows_does_not_matter(any_row: AnyRow, gpus: Gpus, data: st.DataObject) -> None:
    rows = data.draw(st.lists(any_row, max_size=10))
    assert gate(data.draw(st.permutations(rows)), gpus) == gate(rows, gpus)


@fast
@given(data=st.data())
def test_gating_what_was_believed_changes_nothing(any_row: AnyRow, gpus: Gpus, data: st.DataObject) -> None:
    rows = data.draw(st.lists(any_row, max_size=12, unique_by=lambda row: row.id))
    once = gate(rows, gpus)
    believed = {offer.id for offer in once.offers}
    again = gate([row for row in rows if row.id in believed], gpus)
    assert again.offers == once.offers
    assert again.findings == tuple(found for found in once.findings if found.outcome is Outcome.FLAG)


@fast
@given(data=st.data())
def test_a_false_row_never_changes_the_rest(any_row: AnyRow, row: MakeRow, gpus: Gpus, data: st.DataObject) -> None:
    rows = data.draw(st.lists(any_row, max_size=10))
    flaws: list[dict[str, object]] = [{"price": 0.0}, {"price": math.nan}, {"gpu_count": 12}, {"gpu": "Q9"}]
    bad = row(**data.draw(st.sampled_from(flaws)))
    before, after = gate(rows, gpus), gate([*rows, bad], gpus)
    assert after.offers == before.offers
    assert len(after.findings) == len(before.findings) + 1


@fast
@given(data=st.data())
def test_an_absurdly_cheap_row_never_pulls_the_median(
    any_row: AnyRow, row: MakeRow, gpus: Gpus, data: st.DataObject
) -> None:
    rows = data.draw(st.lists(any_row, max_size=10))
    bad = row(cloud=data.draw(st.sampled_from(["aws", "shop"])), price=1e-5)
    honest = row(cloud="honest")
    before, after = gate([*rows, honest], gpus), gate([*rows, honest, bad], gpus)
    assert after.offers == before.offers
