"""A row has a name and a price also when what it says cannot be true."""

import math

import pytest

from hexcloud.domain.market import Outcome
from hexcloud.domain.offer import Tenure, offer_id
from hexcloud.domain.row import Belief, Per, Row


@pytest.fixture
def listed() -> Row:
    return Row(
        cloud="aws",
        region="us-east-1",
        zone="use1-az4",
        instance_type="p5.48xlarge",
        tenure="on_demand",
        gpu="H100",
        gpu_count=8,
        vcpus=192,
        memory_gib=2048,
        network_gb_per_s=400,
        price=40.0,
        as_of="2026-07-20",
        source="list",
    )


def test_a_row_is_named_as_its_offer_will_be(listed: Row) -> None:
    where = ("aws", "us-east-1", "use1-az4", "p5.48xlarge")
    assert listed.id == offer_id(*where, Tenure.ON_DEMAND)
    assert listed.model_copy(update={"tenure": "spot"}).id == offer_id(*where, Tenure.SPOT)
    assert listed.model_copy(update={"zone": None}).id == "aws/us-east-1/-/p5.48xlarge/on_demand"


def test_a_row_of_an_unknown_tenure_still_has_a_name(listed: Row) -> None:
    assert listed.model_copy(update={"tenure": "loan"}).id.endswith("/loan")


def test_a_price_per_gpu_is_a_machines_price_times_its_gpus(listed: Row) -> None:
    assert listed.list_price == 40.0
    assert listed.model_copy(update={"per": Per.GPU}).list_price == 320.0


def test_a_row_without_a_price_survives_a_round_trip(listed: Row) -> None:
    for price in (math.nan, math.inf, -math.inf):
        text = listed.model_copy(update={"price": price}).model_dump_json()
        assert Row.model_validate_json(text).model_dump_json() == text


@pytest.mark.parametrize(
    ("outcome", "is_believed"),
    [(Outcome.ACCEPT, True), (Outcome.FLAG, True), (Outcome.QUARANTINE, False), (Outcome.REJECT, False)],
)
def test_only_accepted_and_flagged_rows_may_become_offers(listed: Row, outcome: Outcome, is_believed: bool) -> None:
    assert Belief(row=listed, outcome=outcome).is_believed is is_believed
