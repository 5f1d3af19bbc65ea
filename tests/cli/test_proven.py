import pytest

from hexcloud.cli.proven import bounds
from hexcloud.domain.plan import Proof

TOKENS = 2000.0


def test_the_cheapest_plan_is_bounded_in_dollars_per_hour() -> None:
    (bound,) = bounds(Proof(lower_bound_usd_per_hour=22.694, gap=0.001), TOKENS)
    assert (bound.key, f"{bound.what} {bound.text}") == ("lower_bound_usd_per_hour", "no plan is under 22.69 USD/h")


def test_the_fastest_plan_is_bounded_in_the_users_unit() -> None:
    (bound,) = bounds(Proof(lower_bound_usd_per_hour=None, upper_bound_samples_per_s=12.5, gap=0.001), TOKENS)
    assert bound.value == 25_000
    assert f"{bound.what} {bound.text}" == "no plan makes more than 25000 tok/s"


def test_the_thriftiest_plan_is_bounded_in_dollars_per_token() -> None:
    (bound,) = bounds(Proof(lower_bound_usd_per_hour=None, lower_bound_usd_per_sample=0.0004, gap=0.0), TOKENS)
    assert bound.value == pytest.approx(0.2)
    assert bound.text == "0.2000 USD per 1e6 tokens"
