"""One region's answers become rows, quotas and a hash."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import example, given
from hypothesis import strategies as st

from hexcloud.adapters.clouds.aws_answers import ListPrice, Machine, SpotPrice
from hexcloud.adapters.markets.aws_part import Said, part_of
from hexcloud.appraise.gate import gate
from hexcloud.appraise.known import Known
from hexcloud.domain.market import Outcome
from hexcloud.domain.row import Part, Row

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
P5 = Machine("p5.48xlarge", "H100", 8, 192, 2048, 400, True)
SAID = Said(
    region="us-east-1",
    machines={"p5.48xlarge": P5},
    zone_ids={"us-east-1a": "use1-az4", "us-east-1b": "use1-az6", "us-east-1-bos-1a": "use1-bos1-az1"},
    ordinary_zones=frozenset({"use1-az4", "use1-az6"}),
    offerings=frozenset({("p5.48xlarge", "use1-az4"), ("m7i.large", "use1-az4")}),
    spot=(SpotPrice("p5.48xlarge", "use1-az4", "us-east-1a", 1.0, 21.5),),
    on_demand={"p5.48xlarge": ListPrice(55.04, "USD"), "m7i.large": ListPrice(0.1, "USD")},
    limits={"L-417A185B": 384.0},
    reservations=({"Instances": [{"InstanceType": "p5.48xlarge"}]},),
    scores={("p5.48xlarge", "use1-az4"): 9},
)


def by_tenure(part: Part) -> dict[str, Row]:
    return {row.tenure: row for row in part.rows}


def test_a_machine_has_a_row_per_zone_and_tenure_with_zone_id_and_name() -> None:
    rows = by_tenure(part_of(SAID, NOW))
    assert [row.id for row in rows.values()] == [
        "aws/us-east-1/use1-az4/p5.48xlarge/on_demand",
        "aws/us-east-1/use1-az4/p5.48xlarge/spot",
    ]
    for row in rows.values():
        assert (row.zone_name, row.listed, row.source, row.as_of) == ("us-east-1a", True, "aws", NOW.isoformat())
    assert (rows["on_demand"].price, rows["on_demand"].quota) == (55.04, "aws/us-east-1/L-417A185B")
    assert (rows["spot"].price, rows["spot"].quota) == (21.5, "aws/us-east-1/L-C4BD4855")
    assert rows["spot"].quota_units == 192
    assert rows["spot"].placement_score == 9 and rows["on_demand"].placement_score is None
    assert rows["spot"].scored_as_of == NOW.isoformat() and rows["on_demand"].scored_as_of == ""


def test_a_spot_price_where_the_machine_is_not_listed_is_kept_and_says_so() -> None:
    said = replace(SAID, spot=(SpotPrice("p5.48xlarge", "use1-az6", "us-east-1b", 1.0, 21.5),))
    assert by_tenure(part_of(said, NOW))["spot"].listed is False


def test_missing_spot_is_no_row_and_missing_on_demand_is_no_row() -> None:
    assert list(by_tenure(part_of(replace(SAID, spot=()), NOW))) == ["on_demand"]
    assert list(by_tenure(part_of(replace(SAID, on_demand={}), NOW))) == ["spot"]


def test_a_local_zone_is_not_sold_at_the_regions_price_on_demand_and_has_a_spot_price_of_its_own() -> None:
    local = frozenset({*SAID.offerings, ("p5.48xlarge", "use1-bos1-az1")})
    spot = (*SAID.spot, SpotPrice("p5.48xlarge", "use1-bos1-az1", "us-east-1-bos-1a", 1.0, 30.0))
    rows = part_of(replace(SAID, offerings=local, spot=spot), NOW).rows
    assert {(row.zone, row.tenure, row.price) for row in rows} == {
        ("use1-az4", "on_demand", 55.04),
        ("use1-az4", "spot", 21.5),
        ("use1-bos1-az1", "spot", 30.0),
    }


def test_prices_on_demand_that_may_not_be_asked_for_leave_every_machine_listed_without_one() -> None:
    part = part_of(replace(SAID, on_demand=None), NOW)
    rows = by_tenure(part)
    assert rows["spot"].price == 21.5 and math.isnan(rows["on_demand"].price)
    assert rows["on_demand"].id == by_tenure(part_of(SAID, NOW))["on_demand"].id
    assert "no prices on demand" in part.note and "pricing:GetProducts" in part.note and part.problem == ""
    assert part.complete, "all machines are listed"
    outcomes = {belief.row.tenure: (belief.outcome, belief.reason) for belief in gate(part.rows, Known())}
    assert outcomes["spot"][0] is Outcome.ACCEPT
    assert outcomes["on_demand"] == (
        Outcome.REJECT,
        "lists no price (this account may not ask for it: pricing:GetProducts)",
    )


def test_limits_that_may_not_be_asked_for_are_none_and_all_machines_are_listed() -> None:
    part = part_of(replace(SAID, limits=None, reservations=()), NOW)
    assert part.quotas == () and len(part.rows) == 2 and part.complete
    assert "no limits" in part.note and "servicequotas:ListServiceQuotas" in part.note
    whole = part_of(SAID, NOW)
    assert whole.complete and whole.note == ""


def test_what_runs_is_taken_off_the_limit() -> None:
    (quota,) = part_of(SAID, NOW).quotas
    assert (quota.key, quota.left, quota.limit) == ("aws/us-east-1/L-417A185B", 192, 384)


def test_china_is_in_its_own_currency_in_both_tenures() -> None:
    said = replace(SAID, region="cn-north-1", on_demand={"p5.48xlarge": ListPrice(172.87, "CNY")})
    assert {row.currency for row in part_of(said, NOW).rows} == {"CNY"}


def test_the_hash_is_of_what_was_said_and_not_of_when_or_of_what_we_run() -> None:
    content = part_of(SAID, NOW).content
    assert part_of(SAID, NOW + timedelta(hours=1)).content == content
    assert part_of(replace(SAID, reservations=(), scores={}), NOW).content == content
    dearer = (SpotPrice("p5.48xlarge", "use1-az4", "us-east-1a", 2.0, 22.0),)
    assert part_of(replace(SAID, spot=dearer), NOW).content != content


NUMBERS = st.floats().map(lambda number: number + 0.0) | st.sampled_from([0.0, -1.0, math.nan, math.inf])


@example([("?", 0.0, -math.inf), ("?", 0.0, math.nan)], 1.0)
@given(st.lists(st.tuples(st.sampled_from(["use1-az4", "use1-az6", "?"]), NUMBERS, NUMBERS), max_size=6), NUMBERS)
def test_rows_carry_any_number_to_the_gate_and_their_order_does_not_matter(
    spots: list[tuple[str, float, float]], price: float
) -> None:
    prices = tuple(SpotPrice("p5.48xlarge", zone, None, at_s, cost) for zone, at_s, cost in spots)
    said = replace(SAID, spot=prices, on_demand={"p5.48xlarge": ListPrice(price, "USD")})
    part = part_of(said, NOW)
    assert len({row.id for row in part.rows}) == len(part.rows) == 1 + len({zone for zone, _, _ in spots})
    assert part_of(replace(said, spot=prices[::-1]), NOW).content == part.content
