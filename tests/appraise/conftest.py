from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import strategies as st

from hexcloud.appraise.known import Known, Scored, Seen
from hexcloud.domain.offer import OfferId
from hexcloud.domain.prices import Held, Voucher
from hexcloud.domain.row import Row

SOUND: dict[str, Any] = {
    "cloud": "aws",
    "region": "us-east-1",
    "zone": "a",
    "instance_type": "big",
    "tenure": "on_demand",
    "gpu": "H100",
    "gpu_count": 8,
    "vcpus": 96,
    "memory_gib": 768,
    "network_gb_per_s": 50,
    "price": 40.0,
    "as_of": "2026-07-20",
    "source": "list",
}
RATES = {"USD": 1.0, "CNY": 0.14}
PRICES = [0.0, -1.0, float("nan"), float("inf"), -float("inf"), 1e-320, 1e308, 0.001, 4.0, 14.0, 39.99, 40.0, 41.0]


@pytest.fixture
def row() -> Callable[..., Row]:
    """Make a sound row, but for what is named."""
    return lambda **odd: Row(**{**SOUND, **odd})


@pytest.fixture
def vouched() -> Callable[..., dict[str, Any]]:
    """What a user's word for the price of a row, waiting under a rule, adds to what is known."""

    def word(row: Row, rule: str, **odd: Any) -> dict[str, Any]:
        said = {"offer_id": row.id, "source": row.source, "list_price": row.list_price, "currency": row.currency}
        return {"vouched": (Voucher.model_validate({**said, "rule": rule, "by": "user", "at_s": 0.0, **odd}),)}

    return word


@pytest.fixture
def known() -> Known:
    """An H100 usually costs 5 USD an hour, and one yuan is 0.14 USD."""
    return Known(usual_usd_per_gpu_hour={"H100": 5.0, "L4": 0.8}, usd_per_unit=RATES, odd_counts={"trn-6": 6})


def _any_row() -> st.SearchStrategy[Row]:
    """Rows as bad as real ones: wrong numbers, clashing places, twins."""
    return st.builds(
        Row,
        cloud=st.sampled_from(["aws", "gcp", "neo"]),
        region=st.sampled_from(["r1", "r2"]),
        zone=st.sampled_from([None, "a", "b"]),
        instance_type=st.sampled_from(["big", "small", "trn-6"]),
        tenure=st.sampled_from(["on_demand", "spot", "spot", "on_demand", "loan"]),
        gpu=st.sampled_from(["H100", "L4", "H100", "Q9"]),
        gpu_count=st.sampled_from([1, 8, 8, 6, 12, 0, float("nan"), 2.5]),
        vcpus=st.just(8),
        memory_gib=st.just(64),
        network_gb_per_s=st.sampled_from([1.25, 1.25, 0.0]),
        price=st.one_of(st.floats(0.01, 1000), st.sampled_from(PRICES)),
        currency=st.sampled_from(["USD", "USD", "USD", "CNY", "ISK"]),
        per=st.sampled_from(["instance", "gpu"]),
        missing=st.sampled_from(["", "", "", "8 x H100"]),
        listed=st.sampled_from([None, True, False]),
        placement_score=st.sampled_from([None, 1, 2, 3, 10, 99]),
        as_of=st.sampled_from(["2026-07-20", "2024-05-01", "soon"]),
        source=st.sampled_from(["list", "tracker"]),
    )


def _wild_row() -> st.SearchStrategy[Row]:
    """Anything that a Row can hold."""
    number, text = st.floats(), st.text(max_size=6)
    return st.builds(
        Row,
        cloud=text,
        region=text,
        zone=st.none() | text,
        instance_type=text,
        tenure=text | st.sampled_from(["spot", "on_demand"]),
        gpu=text,
        gpu_count=number | st.sampled_from([1.0, 8.0, 1e300]),
        vcpus=number | st.just(1.0),
        memory_gib=number | st.just(1.0),
        network_gb_per_s=number | st.just(1.0),
        price=number,
        currency=text | st.just("USD"),
        per=st.sampled_from(["instance", "gpu"]),
        missing=text,
        listed=st.none() | st.booleans(),
        placement_score=st.none() | st.integers(),
        quota=st.none() | text,
        quota_units=number | st.just(0.0),
        as_of=text | st.datetimes().map(str) | st.just("0001-01-01T00:00:00+23:59"),
        source=text,
        lineage=text,
    )


def _any_known() -> st.SearchStrategy[Known]:
    """Facts, witnesses, a past and a quarantine that fit some of the rows, and some that fit none."""
    ids = st.builds(
        lambda *parts: OfferId("/".join(parts)),
        st.sampled_from(["aws", "gcp"]),
        st.sampled_from(["r1", "r2"]),
        st.sampled_from(["-", "a"]),
        st.sampled_from(["big", "small"]),
        st.sampled_from(["on_demand", "spot"]),
    )
    price = st.floats(0.01, 1000) | st.sampled_from(PRICES)
    held = st.builds(
        Held,
        offer_id=ids,
        source=st.just("list"),
        rule=st.sampled_from(["step", "far_too_cheap"]),
        reason=st.just("?"),
        list_price=price,
        currency=st.sampled_from(["USD", "CNY"]),
        content=st.sampled_from(["", "old", "new"]),
        at_s=st.just(0.0),
    )
    seen = st.builds(
        Seen,
        cloud=st.sampled_from(["aws", "gcp"]),
        region=st.sampled_from(["r1", "r2"]),
        instance_type=st.sampled_from(["big", "small"]),
        tenure=st.sampled_from(["on_demand", "spot"]),
        gpu_count=st.sampled_from([8, 12, float("nan")]),
        usd_per_hour=price,
        lineage=st.sampled_from(["", "list", "other"]),
        is_believed=st.booleans(),
        as_of=st.sampled_from([None, datetime(2023, 1, 1, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC)]),
    )
    voucher = st.builds(
        Voucher,
        offer_id=ids,
        source=st.sampled_from(["list", "tracker"]),
        rule=st.sampled_from(["step", "impossible_count", "far_too_cheap"]),
        list_price=st.none() | price,
        currency=st.sampled_from(["USD", "CNY"]),
        by=st.just("user"),
        usd_per_hour=st.none() | price,
        at_s=st.just(0.0),
    )
    score = st.builds(Scored, st.integers(1, 10), st.sampled_from(["2026-07-19T12:00:00+00:00", "2020-01-01", "?"]))
    return st.builds(
        Known,
        usual_usd_per_gpu_hour=st.sampled_from([{}, {"H100": 5.0, "L4": 0.8}, {"H100": float("nan")}]),
        usd_per_unit=st.sampled_from([RATES, {}, {"USD": 1.0, "CNY": float("nan")}, {"USD": float("inf")}]),
        odd_counts=st.just({"trn-6": 6}),
        last=st.dictionaries(st.tuples(st.just("list"), ids), st.tuples(price, st.sampled_from(["USD", "CNY", "ISK"]))),
        held=st.lists(held, max_size=4).map(tuple),
        seen=st.lists(seen, max_size=4).map(tuple),
        vouched=st.lists(voucher, max_size=3).map(tuple),
        scores=st.dictionaries(st.tuples(st.just("list"), ids), score, max_size=3),
        proven=st.frozensets(ids, max_size=3),
    )


@pytest.fixture(scope="session")
def any_row() -> st.SearchStrategy[Row]:
    return _any_row()


@pytest.fixture(scope="session")
def wild_row() -> st.SearchStrategy[Row]:
    return _wild_row()


@pytest.fixture(scope="session")
def any_known() -> st.SearchStrategy[Known]:
    return _any_known()
