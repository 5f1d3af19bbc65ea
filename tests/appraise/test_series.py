from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hexcloud.appraise.gate import gate
from hexcloud.appraise.history import Events, History, Machine, Standing, history_of
from hexcloud.appraise.known import Known
from hexcloud.appraise.series import RULES, judge
from hexcloud.domain.market import Outcome
from hexcloud.domain.offer import OfferId
from hexcloud.domain.prices import Held
from hexcloud.domain.row import Belief, Row

SPOT_A, SPOT_B = OfferId("aws/us-east-1/use1-az1/p5.48xlarge/spot"), OfferId("aws/us-east-1/use1-az2/p5.48xlarge/spot")
ON_DEMAND = OfferId("aws/us-east-1/-/p5.48xlarge/on_demand")
OTHER = OfferId("aws/us-east-1/use1-az1/g6.12xlarge/spot")
MACHINES = {"p5.48xlarge": Machine("H100", 8), "g6.12xlarge": Machine("L4", 12)}
KNOWN = Known(usual_usd_per_gpu_hour={"H100": 4.0, "L4": 0.8})
NOT_LISTED = None

Look = dict[OfferId, float | None]


def history(looks: dict[float, Look], is_snapshots: bool = True) -> History:
    """Record every change between looks; an offer that a look leaves out is gone."""
    ids = tuple(sorted({offer_id for look in looks.values() for offer_id in look}))
    events: list[tuple[int, float, float, int]] = []
    before: Look = {}
    for at_s, look in sorted(looks.items()):
        for number, offer_id in enumerate(ids):
            now = look.get(offer_id)
            if now != before.get(offer_id):
                gone = now is None
                events.append((number, at_s, np.nan if now is None else now, Standing.GONE if gone else 0))
        before = look
    columns = list(zip(*events, strict=True)) or [(), (), (), ()]
    series, at, price, standing = (np.array(column) for column in columns)
    batch = Events(ids, series.astype(np.int64), at.astype(float), price.astype(float), standing.astype(np.int8))
    return history_of((batch,), is_snapshots)


def rules(looks: dict[float, Look], offer_id: OfferId, is_snapshots: bool = True) -> list[str]:
    judged = judge(history(looks, is_snapshots), KNOWN, MACHINES)
    return [RULES[rule][0] if rule >= 0 else "-" for rule in judged.rule[judged.history.series(offer_id)]]


def prices(looks: dict[float, Look], offer_id: OfferId, is_snapshots: bool = True) -> list[float | None]:
    believed = judge(history(looks, is_snapshots), KNOWN, MACHINES).believed()
    quotes = [believed.price_at(offer_id, at_s) for at_s in sorted(looks)]
    return [quote and quote.usd_per_hour for quote in quotes]


def test_small_moves_are_accepted_and_nothing_is_said() -> None:
    looks: dict[float, Look] = {at: {SPOT_A: price, ON_DEMAND: 98.0} for at, price in enumerate((40.0, 45.0, 50.0))}
    judged = judge(history(looks), KNOWN, MACHINES)
    assert judged.counts() == {(Outcome.ACCEPT, ""): 4}
    assert judged.findings("aws") == ()


def test_what_cannot_be_a_price_is_rejected_and_the_last_good_price_stands() -> None:
    looks: dict[float, Look] = {at: {SPOT_A: price} for at, price in enumerate((40.0, 0.0, -1.0, np.inf, 41.0))}
    bad = "price_not_positive"
    assert rules(looks, SPOT_A) == ["", bad, bad, bad, ""]
    assert prices(looks, SPOT_A) == [40.0, 40.0, 40.0, 40.0, 41.0]


def test_spot_over_the_on_demand_price_of_that_moment_is_rejected() -> None:
    looks: dict[float, Look] = {0: {SPOT_A: 60.0, ON_DEMAND: 98.0}, 1: {SPOT_A: 60.0, ON_DEMAND: 70.0}}
    looks |= {2: {SPOT_A: 72.0, ON_DEMAND: 70.0}, 3: {SPOT_A: 72.0, ON_DEMAND: 80.0}}
    assert rules(looks, SPOT_A) == ["", "", "spot_over_on_demand", ""]
    assert prices(looks, SPOT_A) == [60.0, 60.0, 60.0, 72.0]


def test_floor_and_full_prices_are_believed_but_unproven() -> None:
    looks: dict[float, Look] = {0: {SPOT_A: 9.0, SPOT_B: 98.0, ON_DEMAND: 98.0}}
    assert rules(looks, SPOT_A) == ["floor_price"]
    assert rules(looks, SPOT_B) == ["spot_equals_on_demand"]
    quote = judge(history(looks), KNOWN, MACHINES).believed().price_at(SPOT_A, 0)
    assert quote is not None and quote.usd_per_hour == 9.0 and not quote.proven


def test_a_floor_price_without_a_price_on_demand_is_measured_by_what_such_gpus_usually_cost() -> None:
    assert rules({0: {SPOT_A: 3.8, SPOT_B: 3.9}}, SPOT_A) == ["floor_price"]
    assert rules({0: {SPOT_A: 3.8, SPOT_B: 3.9}}, SPOT_B) == [""]
    assert rules({0: {SPOT_A: 3.8, ON_DEMAND: 30.0}}, SPOT_A) == [""], "its own price comes first"
    assert rules({0: {SPOT_A: 3.8, ON_DEMAND: 0.0}}, SPOT_A) == ["floor_price"]


def test_a_step_waits_for_a_second_look_that_agrees() -> None:
    steps: list[tuple[tuple[float, ...], list[str], list[float]]] = [
        ((40.0, 60.0, 61.0), ["", "step", ""], [40.0, 40.0, 61.0]),
        ((40.0, 60.0, 40.0), ["", "step", ""], [40.0, 40.0, 40.0]),
        ((40.0, 60.0, 90.0, 91.0), ["", "step", "", ""], [40.0, 40.0, 90.0, 91.0]),
        ((40.0, 90.0, 60.0, 61.0), ["", "step", "step", ""], [40.0, 40.0, 40.0, 61.0]),
        ((40.0, 24.0, 14.0, 14.2), ["", "step", "step", ""], [40.0, 40.0, 40.0, 14.2]),
        ((40.0, 60.0, 0.0, 60.0), ["", "step", "price_not_positive", "step"], [40.0] * 4),
    ]
    for given_prices, said, believed in steps:
        looks: dict[float, Look] = {at: {SPOT_A: price} for at, price in enumerate(given_prices)}
        assert rules(looks, SPOT_A) == said
        assert prices(looks, SPOT_A) == believed


def test_an_unchanged_step_is_freed_by_the_next_snapshot_of_the_file_but_not_by_news_of_others() -> None:
    looks: dict[float, Look] = {0: {SPOT_A: 40.0, SPOT_B: 40.0}, 1: {SPOT_A: 60.0, SPOT_B: 40.0}}
    looks |= {2: {SPOT_A: 60.0, SPOT_B: 41.0}}
    assert prices(looks, SPOT_A) == [40.0, 40.0, 60.0]
    assert prices(looks, SPOT_A, is_snapshots=False) == [40.0, 40.0, 40.0]


def test_an_offer_that_was_gone_begins_anew() -> None:
    looks: dict[float, Look] = {0: {SPOT_A: 40.0}, 1: {}, 2: {SPOT_A: 90.0}}
    assert rules(looks, SPOT_A) == ["", "-", ""]
    assert prices(looks, SPOT_A) == [40.0, None, 90.0]


def test_level_faults_stay_whatever_the_source_repeats() -> None:
    looks: dict[float, Look] = {at: {SPOT_A: 0.2 + at / 100, OTHER: 3.0 + at} for at in range(4)}
    assert rules(looks, SPOT_A) == ["far_too_cheap"] * 4
    assert rules(looks, OTHER) == ["impossible_count"] * 4
    assert prices(looks, SPOT_A) == [None] * 4


def test_findings_are_grouped_with_counts_and_an_example() -> None:
    looks: dict[float, Look] = {at: {SPOT_A: -1.0 - at, SPOT_B: 40.0} for at in range(3)}
    (finding,) = judge(history(looks), KNOWN, MACHINES).findings("aws")
    assert (finding.rule, finding.row, finding.source) == ("price_not_positive", SPOT_A, "aws")
    assert "3 times, 1 offers; first -1 USD/h on 1970-01-01" in finding.reason


@dataclass
class Replay:
    """The row gate as a refresh uses it, look by look."""

    last: dict[tuple[str, OfferId], tuple[float, str]] = field(default_factory=dict)
    unproven: dict[OfferId, bool] = field(default_factory=dict)
    held: tuple[Held, ...] = ()

    def see(self, look: Look) -> dict[OfferId, Belief]:
        known = KNOWN.model_copy(update={"last": dict(self.last), "held": self.held})
        content = repr(sorted(look.items()))
        rows = [row(offer_id, price) for offer_id, price in look.items() if price is not None]
        beliefs = {belief.row.id: belief for belief in gate(rows, known, content)}
        for key in [key for key in self.last if key[1] not in beliefs]:
            del self.last[key]
        for belief in beliefs.values():
            if belief.is_believed:
                self.last["t", belief.row.id] = (belief.row.price, "USD")
                self.unproven[belief.row.id] = belief.outcome is Outcome.FLAG
        self.held = tuple(waits(belief, content) for belief in beliefs.values() if belief.outcome == "quarantine")
        return beliefs

    def price(self, offer_id: OfferId) -> tuple[float, bool] | None:
        last = self.last.get(("t", offer_id))
        return last and (last[0], not self.unproven[offer_id])


def row(offer_id: OfferId, price: float) -> Row:
    cloud, region, zone, instance_type, tenure = offer_id.split("/")
    gpu, gpu_count = MACHINES[instance_type]
    return Row(
        cloud=cloud,
        region=region,
        zone=None if zone == "-" else zone,
        instance_type=instance_type,
        tenure=tenure,
        gpu=gpu,
        gpu_count=gpu_count,
        vcpus=8,
        memory_gib=64,
        network_gb_per_s=1,
        price=price,
        as_of="2024-01-01",
        source="t",
    )


def waits(belief: Belief, content: str) -> Held:
    return Held(
        offer_id=belief.row.id,
        source="t",
        rule=belief.rule,
        reason=belief.reason,
        list_price=belief.row.price,
        currency="USD",
        content=content,
        at_s=0,
    )


PRICES = st.sampled_from([NOT_LISTED, 0.0, -2.0, 0.2, 3.0, 8.0, 40.0, 41.0, 42.0, 55.0, 60.0, 62.0, 63.0, 98.0, 140.0])
LOOKS = st.lists(
    st.fixed_dictionaries({offer_id: PRICES for offer_id in (SPOT_A, SPOT_B, ON_DEMAND, OTHER)}), min_size=1, max_size=9
)


@settings(max_examples=400, deadline=None)
@given(LOOKS)
def test_the_series_gate_says_what_the_row_gate_says_look_by_look(drawn: list[Look]) -> None:
    looks = {float(at): look for at, look in enumerate(drawn)}
    judged = judge(history(looks), KNOWN, MACHINES)
    believed, replay = judged.believed(), Replay()
    for at_s, look in looks.items():
        beliefs = replay.see(look)
        for offer_id in look:
            where = judged.history.series(offer_id)
            event = where.start + int(np.searchsorted(judged.history.at_s[where], at_s))
            if event < where.stop and judged.history.at_s[event] == at_s:
                rule = judged.rule[event]
                said = beliefs.get(offer_id)
                assert (said and said.rule) == (RULES[rule][0] if rule >= 0 else None), (offer_id, at_s)
            quote = believed.price_at(offer_id, at_s)
            priced = quote if quote and quote.usd_per_hour is not None else None
            assert (priced and (priced.usd_per_hour, priced.proven)) == replay.price(offer_id), (offer_id, at_s)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from([SPOT_A, ON_DEMAND]), st.floats(width=32), max_size=2), max_size=6))
def test_whatever_was_recorded_only_positive_finite_prices_are_believed(drawn: list[Look]) -> None:
    judged = judge(history({float(at): look for at, look in enumerate(drawn)}), KNOWN, MACHINES)
    for quote in judged.believed().at(len(drawn)).values():
        assert quote.usd_per_hour is None or 0 < quote.usd_per_hour < np.inf
