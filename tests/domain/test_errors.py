"""Errors carry what the caller needs next."""

import pytest

from hexcloud.domain import errors


def test_every_error_is_a_hexcloud_error_and_stands_in_the_drawn_tree() -> None:
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert issubclass(kind, errors.HexcloudError)
            assert name in (errors.__doc__ or "")


def test_infeasible_names_rules_and_the_nearest_ask() -> None:
    with pytest.raises(errors.PlanError) as caught:
        raise errors.InfeasibleError("no", rules=("stock[x]",), nearest_samples_per_s=3.0, nearest_usd_per_hour=4.0)
    error = caught.value
    assert isinstance(error, errors.InfeasibleError)
    assert (error.rules, error.nearest_samples_per_s, error.nearest_usd_per_hour) == (("stock[x]",), 3.0, 4.0)


def test_provision_errors_carry_the_offer_and_the_raw_code() -> None:
    error = errors.CapacityError("sold out", offer_id="a/b/c/d/spot", code="InsufficientInstanceCapacity")
    assert (error.offer_id, error.code) == ("a/b/c/d/spot", "InsufficientInstanceCapacity")


def test_budget_error_says_the_least_spend() -> None:
    assert errors.BudgetError("too little", least_usd=1.5).least_usd == 1.5
