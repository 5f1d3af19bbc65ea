"""A machine of a SkyPilot catalog becomes a row for each market in which it has a price."""

import math
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hexcloud.adapters.files import load_gpu_names
from hexcloud.adapters.markets.skypilot_account import Account
from hexcloud.adapters.markets.skypilot_gcp import Machine, whole
from hexcloud.adapters.markets.skypilot_lines import Line
from hexcloud.adapters.markets.skypilot_names import GpuNames
from hexcloud.adapters.markets.skypilot_rows import OTHER_CURRENCIES, RowMaker, currency_of
from hexcloud.domain.row import Row

DAY = datetime(2024, 5, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> RowMaker:
    return RowMaker(GpuNames(load_gpu_names()), Account(tmp_path_factory.mktemp("empty")))


def line(**cells: str) -> Line:
    usual = {"InstanceType": "p4d.24xlarge", "AcceleratorName": "A100", "AcceleratorCount": "8", "Region": "us-east-1"}
    return Line({**usual, "vCPUs": "96", "MemoryGiB": "1152", **cells}, "aws.csv:9", DAY)


def rows(maker: RowMaker, cloud: str = "aws", **cells: str) -> list[Row]:
    return list(maker.rows(cloud, whole(line(**cells))))


def test_two_prices_make_two_rows_with_everything_known(maker: RowMaker) -> None:
    on_demand, spot = rows(maker, Price="21.96", SpotPrice="7.5", AvailabilityZone="use1-az1")
    assert (on_demand.tenure, on_demand.price, spot.tenure, spot.price) == ("on_demand", 21.96, "spot", 7.5)
    assert on_demand.id == "aws/us-east-1/use1-az1/p4d.24xlarge/on_demand"
    assert (on_demand.gpu, on_demand.gpu_count, on_demand.vcpus, on_demand.memory_gib) == ("A100-40GB", 8, 96, 1152)
    assert (on_demand.network_gb_per_s, on_demand.quota_units) == (50, 96)
    assert on_demand.quota == "aws/us-east-1/L-417A185B" and spot.quota == "aws/us-east-1/L-7212CCBC"
    assert (on_demand.as_of, on_demand.source, on_demand.lineage) == (DAY.isoformat(), "skypilot", "skypilot")
    assert (on_demand.currency, on_demand.missing, on_demand.place) == ("USD", "", "aws.csv:9")


def test_each_market_stands_alone(maker: RowMaker) -> None:
    assert [(row.tenure, row.price) for row in rows(maker, Price="", SpotPrice="7.5")] == [("spot", 7.5)]
    assert [(row.tenure, row.price) for row in rows(maker, Price="21.96")] == [("on_demand", 21.96)]
    assert [(row.tenure, row.price) for row in rows(maker, Price="0.0", SpotPrice="0")] == [
        ("on_demand", 0.0),
        ("spot", 0.0),
    ]


def test_no_price_in_any_market_is_one_row_without_one(maker: RowMaker) -> None:
    (row,) = rows(maker, Price="", SpotPrice="nan")
    assert row.tenure == "on_demand" and math.isnan(row.price)


def test_words_for_numbers_are_left_to_the_gate(maker: RowMaker) -> None:
    (row,) = rows(maker, Price="cheap", AcceleratorCount="many", vCPUs="lots", MemoryGiB="")
    assert math.isnan(row.price) and math.isnan(row.gpu_count) and math.isnan(row.vcpus) and row.memory_gib == 0


def test_a_sum_of_which_one_part_has_no_price_says_so(maker: RowMaker) -> None:
    host = Line({"InstanceType": "a2-highgpu-1g", "Region": "us", "Price": "0.74", "vCPUs": "12"}, "h:1", DAY)
    gpu = Line({"AcceleratorName": "A100", "Region": "us", "Price": "2.93", "SpotPrice": "1.17"}, "a:1", DAY)
    on_demand, spot = maker.rows("gcp", Machine("a2-highgpu-1g", "A100", 1.0, (host, gpu)))
    assert (on_demand.price, on_demand.missing, on_demand.place) == (3.67, "", "h:1+a:1")
    assert (spot.price, spot.missing) == (1.17, "the SpotPrice of h:1")


def test_a_slice_of_a_gpu_is_no_whole_one(maker: RowMaker) -> None:
    cells = {"InstanceType": "Standard_NV6ads_A10_v5", "AcceleratorName": "A10", "AcceleratorCount": "1"}
    (row,) = rows(maker, "azure", Price="0.454", **cells)
    assert row.gpu_count < 1


@pytest.mark.parametrize(
    ("cloud", "region", "currency"),
    [
        ("aws", "cn-north-1", "CNY"),
        ("aws", "us-east-1", "USD"),
        ("scaleway", "fr-par", "EUR"),
        ("ovhcloud", "GRA", "USD"),
    ],
)
def test_a_cloud_lists_in_the_currency_that_is_declared(cloud: str, region: str, currency: str) -> None:
    assert currency_of(cloud, region) == currency
    assert all(listed.reason for listed in OTHER_CURRENCIES)


def test_what_is_not_known_of_a_machine_has_a_stated_default(maker: RowMaker, tmp_path: Path) -> None:
    (row,) = rows(maker, "cudo", InstanceType="epyc", Price="1")
    assert (row.network_gb_per_s, row.quota, row.quota_units) == (1.25, None, 0.0)
