"""The laws of the gate; each rule has its own file beside this one."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hexcloud.appraise.gate import findings_of, gate, offers_of
from hexcloud.appraise.known import Known, Seen
from hexcloud.appraise.scores import with_last_score
from hexcloud.domain.market import Outcome
from hexcloud.domain.prices import Held
from hexcloud.domain.row import Belief, Row

MakeRow = Callable[..., Row]
AnyRow = st.SearchStrategy[Row]
AnyKnown = st.SearchStrategy[Known]
fast = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
REFUSED = {Outcome.REJECT, Outcome.QUARANTINE}


def believed(beliefs: Iterable[Belief]) -> tuple[Belief, ...]:
    return tuple(belief for belief in beliefs if belief.is_believed)


def test_a_sound_row_becomes_an_offer_and_says_nothing(row: MakeRow, known: Known) -> None:
    beliefs = gate([row()], known)
    assert [(belief.outcome, belief.rule, belief.reason) for belief in beliefs] == [(Outcome.ACCEPT, "", "")]
    assert findings_of(beliefs) == ()
    (offer,) = offers_of(beliefs)
    assert (offer.id, offer.usd_per_hour, offer.proven) == (row().id, 40.0, True)


def test_an_offer_keeps_its_currency_its_zones_name_and_its_placement_score(row: MakeRow, known: Known) -> None:
    yuan = row(price=300.0, currency="CNY", zone_name="us-east-1a", placement_score=7)
    (offer,) = offers_of(gate([yuan], known))
    assert (offer.currency, offer.usd_per_unit) == ("CNY", 0.14)
    assert (offer.list_price, offer.usd_per_hour) == pytest.approx((300.0, 42.0))
    assert (offer.zone_name, offer.placement_score) == ("us-east-1a", 7)


def test_a_row_given_twice_is_one_belief_also_when_it_has_no_price(row: MakeRow, known: Known) -> None:
    assert len(gate([row(price=math.nan), row(price=math.nan), row(), row()], known)) == 2


def test_a_finding_names_row_field_rule_and_reason(row: MakeRow, known: Known) -> None:
    (found,) = findings_of(gate([row(gpu_count=12)], known))
    assert (found.row, found.source, found.field, found.rule) == (row().id, "list", "gpu_count", "impossible_count")
    assert found.reason == "12 GPUs; machines have 1, 2, 4, 8, 16"


def test_of_several_faults_the_gravest_is_told(row: MakeRow, known: Known) -> None:
    base = {"gpu_count": 12, "missing": "8 x H100", "listed": False}
    assert [belief.rule for belief in gate([row(**base, as_of="soon")], known)] == ["bad_date"]
    assert [belief.rule for belief in gate([row(**base)], known)] == ["missing_part"]
    dear = row(tenure="spot", price=41.0, gpu_count=12)
    assert [belief.rule for belief in gate([row(), dear], known) if belief.rule] == ["spot_over_on_demand"]


def test_a_level_fault_is_told_before_a_step(row: MakeRow, known: Known) -> None:
    past = known.model_copy(update={"last": {("list", row().id): (4000.0, "USD")}})
    assert gate([row(gpu_count=12)], past)[0].rule == "impossible_count"
    assert gate([row()], past)[0].rule == "step"


def test_a_step_is_told_before_a_flag(row: MakeRow, known: Known) -> None:
    past = known.model_copy(update={"last": {("list", row().id): (20.0, "USD")}})
    assert gate([row(listed=False)], past)[0].rule == "step"


def test_each_market_stands_alone(row: MakeRow, known: Known) -> None:
    assert len(offers_of(gate([row(tenure="spot", price=14.0)], known))) == 1
    assert len(offers_of(gate([row()], known))) == 1
    (offer,) = offers_of(gate([row(price=math.nan), row(tenure="spot", price=14.0)], known))
    assert offer.tenure == "spot"


def test_too_dear_is_never_an_error(row: MakeRow, known: Known) -> None:
    assert [belief.outcome for belief in gate([row(cloud="shop", price=40_000.0)], known)] == [Outcome.ACCEPT]


def test_an_unknown_accelerator_is_believed(row: MakeRow, known: Known) -> None:
    (offer,) = offers_of(gate([row(gpu="Trainium9")], known))
    assert offer.gpu == "Trainium9"


def test_a_believed_row_whose_new_rate_makes_no_sum_is_no_offer(row: MakeRow, known: Known) -> None:
    (belief,) = gate([row()], known)
    assert offers_of([belief.model_copy(update={"usd_per_unit": 0.0})]) == ()


@fast
@given(data=st.data())
def test_nothing_that_a_row_can_hold_raises(wild_row: AnyRow, any_known: AnyKnown, data: st.DataObject) -> None:
    rows = data.draw(st.lists(wild_row, max_size=6))
    beliefs = gate(rows, data.draw(any_known), "new")
    offers_of(beliefs)
    assert len(findings_of(beliefs)) == sum(belief.outcome is not Outcome.ACCEPT for belief in beliefs)


@fast
@given(data=st.data())
def test_every_row_has_one_outcome_and_every_doubt_a_reason(
    any_row: AnyRow, any_known: AnyKnown, data: st.DataObject
) -> None:
    rows = data.draw(st.lists(any_row, max_size=12))
    beliefs = gate(rows, data.draw(any_known), "new")
    assert len(beliefs) == len({row.model_dump_json() for row in rows})
    for belief in beliefs:
        is_silent = belief.outcome is Outcome.ACCEPT
        assert bool(belief.rule) == bool(belief.field) == bool(belief.reason) != is_silent
        assert is_silent or hasattr(belief.row, belief.field)


@fast
@given(data=st.data())
def test_only_offers_that_can_be_paid_come_out(any_row: AnyRow, any_known: AnyKnown, data: st.DataObject) -> None:
    beliefs = gate(data.draw(st.lists(any_row, max_size=12)), data.draw(any_known), "new")
    offers = offers_of(beliefs)
    assert len(offers) == len(believed(beliefs))
    assert all(0 < offer.usd_per_hour < math.inf for offer in offers)
    assert all(0 < offer.list_price < math.inf for offer in offers)


@fast
@given(data=st.data())
def test_the_order_of_rows_does_not_matter(any_row: AnyRow, any_known: AnyKnown, data: st.DataObject) -> None:
    rows, known = data.draw(st.lists(any_row, max_size=10)), data.draw(any_known)
    shuffled = data.draw(st.permutations(rows))
    assert spelt(gate(shuffled, known, "new")) == spelt(gate(rows, known, "new"))


@fast
@given(data=st.data())
def test_gating_what_was_believed_changes_nothing(any_row: AnyRow, any_known: AnyKnown, data: st.DataObject) -> None:
    known = data.draw(any_known)
    once = believed(gate(data.draw(st.lists(any_row, max_size=12)), known, "new"))
    assert gate([belief.row for belief in once], known, "new") == once


@fast
@given(data=st.data())
def test_a_refused_row_never_changes_the_rest(any_row: AnyRow, any_known: AnyKnown, data: st.DataObject) -> None:
    rows, known = data.draw(st.lists(any_row, min_size=1, max_size=12)), data.draw(any_known)
    beliefs = gate(rows, known, "new")
    refused = {belief.row.model_dump_json() for belief in beliefs if belief.outcome in REFUSED}
    judged = {row.model_dump_json(): with_last_score(row, known).model_dump_json() for row in rows}
    without = gate([row for row in rows if judged[row.model_dump_json()] not in refused], known, "new")
    assert without == believed(beliefs)


@fast
@given(data=st.data(), rate=st.floats(0.01, 100))
def test_a_new_exchange_rate_is_no_step(row: MakeRow, known: Known, data: st.DataObject, rate: float) -> None:
    price = data.draw(st.floats(100, 1000))
    listed = row(price=price, currency="CNY")
    past = known.model_copy(update={"last": {("list", listed.id): (price, "CNY")}, "usual_usd_per_gpu_hour": {}})
    new_rate = past.model_copy(update={"usd_per_unit": {"USD": 1.0, "CNY": rate}})
    (before,), (after,) = gate([listed], past), gate([listed], new_rate)
    assert (before.outcome, after.outcome) == (Outcome.ACCEPT, Outcome.ACCEPT)


@fast
@given(data=st.data())
def test_more_evidence_for_a_row_never_makes_it_worse(
    any_row: AnyRow, known: Known, vouched: Callable[..., dict[str, Any]], data: st.DataObject
) -> None:
    rows = data.draw(st.lists(any_row, max_size=8))
    one = data.draw(st.sampled_from(rows)) if rows else None
    rules = ("missing_part", "impossible_count", "far_too_cheap", "step")
    words = [word for rule in rules for word in (vouched(one, rule)["vouched"] if one else ())]
    trusted = known.model_copy(update={"vouched": tuple(words)})
    order = [Outcome.REJECT, Outcome.QUARANTINE, Outcome.FLAG, Outcome.ACCEPT]
    own = {one.id} if one else set()
    before = [order.index(belief.outcome) for belief in gate(rows, known) if belief.row.id in own]
    after = [order.index(belief.outcome) for belief in gate(rows, trusted) if belief.row.id in own]
    on_demand = one is not None and one.tenure == "on_demand"
    assert not on_demand or all(new >= old for old, new in zip(before, after, strict=True))


def test_a_history_a_witness_and_a_quarantine_are_all_used(row: MakeRow, known: Known) -> None:
    """The laws above would hold for a gate that ignored what it knows; this one would not."""
    known = known.model_copy(
        update={
            "last": {("list", row().id): (20.0, "USD")},
            "held": (
                Held(
                    offer_id=row().id,
                    source="list",
                    rule="step",
                    reason="?",
                    list_price=40.0,
                    currency="USD",
                    content="old",
                    at_s=0.0,
                ),
            ),
            "seen": (
                Seen(
                    cloud="aws",
                    region="us-east-1",
                    instance_type="big",
                    tenure="on_demand",
                    gpu_count=12,
                    usd_per_hour=40.0,
                    lineage="other",
                ),
            ),
        }
    )
    rows = [row(gpu_count=12)]
    assert gate(rows, known, "new")[0].outcome is Outcome.ACCEPT
    assert gate(rows, known, "old")[0].rule == "step"
    assert gate(rows, known.model_copy(update={"seen": ()}), "new")[0].rule == "impossible_count"


def spelt(beliefs: Iterable[Belief]) -> list[str]:
    """NaN is not equal to itself; its spelling is."""
    return [belief.row.model_dump_json() + repr((belief.outcome, belief.rule, belief.reason)) for belief in beliefs]
