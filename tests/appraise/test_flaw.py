import math
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from hexcloud.appraise.flaw import flaw
from hexcloud.appraise.known import Known
from hexcloud.domain.market import Outcome
from hexcloud.domain.row import Row

MakeRow = Callable[..., Row]


@pytest.mark.parametrize(
    ("rule", "field", "odd"),
    [
        ("no_price", "price", {"price": math.nan}),
        ("price_not_positive", "price", {"price": 0.0}),
        ("price_not_positive", "price", {"price": -3.0}),
        ("price_not_positive", "price", {"price": math.inf}),
        ("price_not_positive", "price", {"price": 1e308, "per": "gpu"}),
        ("price_not_positive", "price", {"price": 5e-324, "currency": "CNY"}),
        ("unknown_currency", "currency", {"currency": "ISK"}),
        ("unknown_currency", "currency", {"currency": ""}),
        ("bad_tenure", "tenure", {"tenure": "loan"}),
        ("bad_date", "as_of", {"as_of": "soon"}),
        ("bad_name", "region", {"region": ""}),
        ("bad_name", "instance_type", {"instance_type": "a/b"}),
        ("bad_name", "zone", {"zone": "a/b"}),
        ("bad_count", "gpu_count", {"gpu_count": 0}),
        ("bad_count", "gpu_count", {"gpu_count": 2.5}),
        ("bad_count", "gpu_count", {"gpu_count": math.nan, "per": "gpu"}),
        ("bad_count", "gpu_count", {"gpu_count": math.inf}),
        ("bad_size", "network_gb_per_s", {"network_gb_per_s": 0.0}),
        ("bad_size", "memory_gib", {"memory_gib": math.nan}),
        ("bad_size", "vcpus", {"vcpus": -1}),
        ("bad_size", "quota_units", {"quota_units": math.inf}),
    ],
)
def test_what_cannot_be_true_is_rejected(
    row: MakeRow, known: Known, rule: str, field: str, odd: dict[str, object]
) -> None:
    doubt = flaw(row(**odd), known)
    assert doubt is not None
    assert (doubt.outcome, doubt.rule, doubt.field) == (Outcome.REJECT, rule, field)


def test_a_sound_row_has_no_flaw(row: MakeRow, known: Known) -> None:
    assert flaw(row(), known) is None
    assert flaw(row(zone=None, vcpus=0, memory_gib=0, currency="CNY"), known) is None


@pytest.mark.parametrize("rate", [math.nan, math.inf, 0.0, -1.0])
def test_a_rate_that_converts_nothing_is_no_rate(row: MakeRow, known: Known, rate: float) -> None:
    doubt = flaw(row(currency="CNY"), known.model_copy(update={"usd_per_unit": {"CNY": rate}}))
    assert doubt is not None and doubt.rule == "unknown_currency"


def test_a_reason_says_what_was_listed(row: MakeRow, known: Known) -> None:
    doubt = flaw(row(price=-3.0), known)
    assert doubt is not None and doubt.reason == "price -3 is not a positive number"


def test_no_price_is_true_in_the_future(row: MakeRow) -> None:
    known = Known(latest=datetime(2026, 7, 19, tzinfo=UTC))
    found = flaw(row(as_of="2026-07-20"), known)
    assert found is not None and (found.rule, found.reason) == ("bad_date", "as_of '2026-07-20' lies in the future")
    assert flaw(row(as_of="2026-07-19"), known) is None
