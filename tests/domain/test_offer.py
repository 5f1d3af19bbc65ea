"""An offer's price is a number that can be paid, and its failure domain says what fails together."""

import pytest
from pydantic import ValidationError

from hexcloud.domain.offer import Draw, Offer, Tenure, offer_id


@pytest.mark.parametrize("price", [0.0, -1.0, float("nan"), float("inf")])
def test_a_price_that_cannot_be_paid_cannot_be_built(price: float, spot_offer: Offer) -> None:
    with pytest.raises(ValidationError):
        Offer(**{**spot_offer.model_dump(), "usd_per_hour": price})


def test_spot_fails_by_zone_and_family_and_on_demand_by_region(spot_offer: Offer) -> None:
    assert spot_offer.domain == "aws/us-east-1/use1-az5/H100-SXM"
    assert spot_offer.model_copy(update={"tenure": Tenure.ON_DEMAND}).domain == "aws/us-east-1"


def test_id_spells_a_missing_zone_as_a_dash() -> None:
    assert (
        offer_id("lambda", "us-west-1", None, "gpu_8x_h100", Tenure.ON_DEMAND)
        == "lambda/us-west-1/-/gpu_8x_h100/on_demand"
    )


def test_price_per_gpu(spot_offer: Offer) -> None:
    assert spot_offer.usd_per_gpu_hour == pytest.approx(14.25 / 8)


def test_a_machine_draws_on_its_regions_quota_and_with_its_gpus_on_the_one_over_all_regions(spot_offer: Offer) -> None:
    def drawn(quota: str | None, quota_global: str | None) -> tuple[Draw, ...]:
        named = {"quota": quota, "quota_units": 192.0, "quota_global": quota_global}
        return spot_offer.model_copy(update=named).draws()

    assert drawn(None, None) == ()
    assert drawn("here", None) == (Draw("here", 192.0),)
    assert drawn("here", "all") == (Draw("here", 192.0), Draw("all", 8.0))
    assert drawn(None, "all") == (Draw("all", 8.0),)
