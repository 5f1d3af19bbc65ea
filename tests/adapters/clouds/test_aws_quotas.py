"""Which account limit a machine draws on."""

import csv
from pathlib import Path

import pytest

from hexcloud.adapters.clouds.aws_quotas import codes_of, quotas_left

CATALOG = Path(__file__).resolve().parents[3] / "catalogs/offers/aws.csv"


def test_the_bundled_catalog_names_the_same_limits() -> None:
    with CATALOG.open(newline="") as file:
        for line in csv.DictReader(file):
            codes = codes_of(line["instance_type"])
            assert codes is not None
            code = codes.spot if line["tenure"] == "spot" else codes.on_demand
            assert line["quota"] == f"aws/{line['region']}/{code}", line


@pytest.mark.parametrize(
    ("instance_type", "spot"),
    [
        ("p3.2xlarge", "L-7212CCBC"),
        ("trn2.48xlarge", "L-6B0D517C"),
        ("p5en.48xlarge", "L-C4BD4855"),
        ("inf2.xlarge", "L-B5D1601B"),
        ("gr6.4xlarge", "L-3819A6DF"),
        ("dl1.24xlarge", "L-85EED4F7"),
    ],
)
def test_every_family_has_its_own_spot_limit(instance_type: str, spot: str) -> None:
    codes = codes_of(instance_type)
    assert codes is not None and codes.spot == spot


@pytest.mark.parametrize("instance_type", ["m7i.large", "", "5.large", "u-6tb1.metal"])
def test_a_family_without_accelerators_has_none(instance_type: str) -> None:
    assert codes_of(instance_type) is None


def test_running_machines_lower_what_is_left_and_never_below_nothing() -> None:
    left = quotas_left("us-east-1", {"A": 384.0, "B": 96.0}, [("A", 192.0), ("B", 192.0), ("C", 4.0)])
    assert [(quota.key, quota.left, quota.limit) for quota in left] == [
        ("aws/us-east-1/A", 192.0, 384.0),
        ("aws/us-east-1/B", 0.0, 96.0),
    ]
