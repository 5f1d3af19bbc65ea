import pytest

from hexcloud.adapters.markets.price_formats import FORMATS, PriceFormat, format_of, region_of_zone


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("use1-az4", "us-east-1"),
        ("euw3-az2", "eu-west-3"),
        ("apne1-az4", "ap-northeast-1"),
        ("apse2-az1", "ap-southeast-2"),
        ("usgw1-az1", "us-gov-west-1"),
        ("usw2-lax1-az1", "us-west-2"),
        ("us-east-1c", "us-east-1"),
        ("ap-northeast-2a", "ap-northeast-2"),
        ("us-gov-west-1b", "us-gov-west-1"),
        ("nowhere", ""),
        ("", ""),
    ],
)
def test_a_zone_of_aws_names_its_region(zone: str, region: str) -> None:
    assert region_of_zone(zone) == region


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.name)
def test_each_format_is_told_by_its_own_columns(one: PriceFormat) -> None:
    assert format_of(one.columns) is one
    assert format_of(("more", *one.columns)) is one


def test_an_unknown_header_has_no_format() -> None:
    assert format_of(("a", "b")) is None
    assert format_of(()) is None


def test_prices_per_gpu_are_made_prices_of_the_machine() -> None:
    tracked = next(one for one in FORMATS if "gpu_model" in one.columns)
    key = tracked.key(("Vast AI", "H100_PCIE", "8", "US", "spot"))
    assert key.id("") == "vast-ai/US/-/8x-H100_PCIE/spot"
    assert (key.units, key.machine) == (8.0, ("H100-PCIe", 8.0))
    for odd in ("0", "-1", "2.5", "many", "nan", "inf", ""):
        assert tracked.key(("vast", "H100", odd, "US", "spot")).id("") is None
    assert tracked.key(("vast", "H100", "8", "US", "loan")).id("") is None
