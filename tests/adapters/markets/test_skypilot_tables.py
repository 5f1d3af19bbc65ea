"""Offers as lines of SkyPilot's catalog."""

from datetime import UTC, datetime, timedelta

import pytest

from hexcloud.adapters.files import load_gpu_names, load_gpus
from hexcloud.adapters.markets.skypilot_names import GpuInfo, GpuNames, gpu_info
from hexcloud.adapters.markets.skypilot_tables import (
    Sales,
    Words,
    accelerators_table,
    cloud_table,
    listed_price,
    memory_table,
    price_cell,
    quota_table,
    size_cells,
)
from hexcloud.domain.offer import Offer, Tenure, offer_id

WORDS = Words(GpuNames(load_gpu_names()), load_gpus())
DAY = datetime(2026, 1, 1, tzinfo=UTC)


def offer(
    zone: str | None = None,
    usd: float = 1.0,
    tenure: Tenure = Tenure.ON_DEMAND,
    cloud: str = "aws",
    kind: str = "g6",
    gpu: str = "L4",
    age_days: int = 0,
) -> Offer:
    return Offer(
        id=offer_id(cloud, "here", zone, kind, tenure),
        cloud=cloud,
        region="here",
        zone=zone,
        instance_type=kind,
        tenure=tenure,
        gpu=gpu,
        gpu_count=8,
        vcpus=4,
        memory_gib=0,
        network_gb_per_s=1,
        usd_per_hour=usd,
        quota=f"{cloud}/here/L-{tenure.value}",
        as_of=DAY - timedelta(days=age_days),
        source="x",
    )


def test_one_on_demand_price_for_a_region_and_one_spot_price_for_a_zone() -> None:
    sales = Sales(
        [
            offer("a", 1.0, age_days=9),
            offer("b", 2.0),
            offer("c", 1.5),
            offer("a", 0.3, Tenure.SPOT),
        ],
        has_zones=True,
    )
    lines = cloud_table(sales, WORDS)
    assert [(cells["AvailabilityZone"], cells["Price"], cells["SpotPrice"]) for cells in lines] == [
        ("a", "2", "0.3"),
        ("b", "2", ""),
        ("c", "2", ""),
    ]


def test_a_price_for_the_whole_region_is_written_in_the_zones_we_know() -> None:
    everywhere = [offer(None, 5.0, kind="p5", gpu="H100"), offer(None, 2.0, Tenure.SPOT, kind="p5", gpu="H100")]
    sales = Sales([offer("a"), offer("b"), *everywhere], has_zones=True)
    assert sales.zones("here", "p5") == ["a", "b"] and sales.nowhere() == []
    p5 = [cells for cells in cloud_table(sales, WORDS) if cells["InstanceType"] == "p5"]
    assert [(cells["AvailabilityZone"], cells["Price"], cells["SpotPrice"]) for cells in p5] == [
        ("a", "5", "2"),
        ("b", "5", "2"),
    ]
    alone = Sales(everywhere, has_zones=True)
    assert cloud_table(alone, WORDS) == [] and len(alone.nowhere()) == 2


def test_a_cloud_without_zones_has_no_such_column() -> None:
    (cells,) = cloud_table(Sales([offer(cloud="lambda")], has_zones=False), WORDS)
    assert "AvailabilityZone" not in cells and cells["Region"] == "here"
    assert (cells["AcceleratorCount"], cells["vCPUs"], cells["MemoryGiB"]) == ("8.0", "4", "")
    assert gpu_info(cells["GpuInfo"]) == GpuInfo("L4", 22886 / 1024)


def test_a_price_is_written_in_the_currency_in_which_it_will_be_read() -> None:
    yuan = {"region": "cn-north-1", "currency": "CNY", "usd_per_unit": 0.14}
    in_china = offer(usd=56.0).model_copy(update=yuan)
    assert listed_price(in_china) == pytest.approx(400.0)
    (cells,) = cloud_table(Sales([in_china], has_zones=False), WORDS)
    assert cells["Price"] == "400"
    assert listed_price(offer(usd=56.0).model_copy(update={"currency": "CNY", "usd_per_unit": 0.14})) == 56.0
    assert listed_price(offer(usd=56.0).model_copy(update={"region": "cn-north-1"})) is None


def test_numbers_are_written_plainly_or_not_at_all() -> None:
    assert [price_cell(price) for price in (None, 1.0, 0.1234567, 98.32)] == ["", "1", "0.123457", "98.32"]
    assert size_cells(offer()) == {"vCPUs": "4", "MemoryGiB": ""}


def test_quota_codes_by_machine_or_by_gpu() -> None:
    offers = [offer(), offer("a", tenure=Tenure.SPOT)]
    codes = {"OnDemandInstanceCode": "L-on_demand", "SpotInstanceCode": "L-spot"}
    assert quota_table(offers, "InstanceType", WORDS) == [{"InstanceType": "g6", **codes}]
    assert quota_table(offers, "Accelerator", WORDS) == [{"Accelerator": "L4", **codes}]


def test_the_common_lists_use_skypilots_words() -> None:
    offers = [offer(), offer(cloud="runpod", gpu="H100"), offer(cloud="lambda", gpu="H100-PCIe"), offer(cloud="gcp")]
    assert accelerators_table(offers, WORDS) == [
        {"AcceleratorName": "H100", "Clouds": "['Lambda']"},
        {"AcceleratorName": "H100-SXM", "Clouds": "['RunPod']"},
        {"AcceleratorName": "L4", "Clouds": "['AWS', 'GCP']"},
    ]
    assert [(cells["GPU"], cells["MemoryGB"]) for cells in memory_table(offers, WORDS)] == [
        ("H100", "80"),
        ("H100-SXM", "80"),
        ("L4", "24"),
    ]
