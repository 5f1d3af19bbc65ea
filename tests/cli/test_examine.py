"""Where a price list comes from: a path, the bundle, or what a source said last."""

from pathlib import Path

import pytest

from hexcloud import wiring
from hexcloud.adapters.files import catalog_root
from hexcloud.adapters.markets.skypilot import SkyPilotMarket
from hexcloud.cli.examine import examine
from hexcloud.controller.refresh import refresh
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.market import Outcome

HEADER = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,SpotPrice,Region,AvailabilityZone"
LINES = (
    "p4d.24xlarge,A100,8,96,1152,21.96,9.5,us-east-1,use1-az1\np5.48xlarge,H100,12,192,2048,98.3,,us-east-1,use1-az1\n"
)


@pytest.fixture(autouse=True)
def own_home(home: Path) -> Path:
    return home


def test_the_bundle_is_judged_as_plans_judge_it() -> None:
    found = examine("bundle")
    assert len(found.beliefs) > 2000 and found.unread == ()
    assert not [belief for belief in found.beliefs if belief.outcome is Outcome.REJECT]


def test_a_file_of_offers_is_known_by_its_header() -> None:
    found = examine(str(catalog_root() / "offers" / "lambda.csv"))
    assert {belief.row.cloud for belief in found.beliefs} == {"lambda"}


def test_a_path_is_judged_as_a_refresh_would(tmp_path: Path) -> None:
    (tmp_path / "aws.csv").write_text(f"{HEADER}\n{LINES}")
    by_folder, by_file = examine(str(tmp_path)), examine(str(tmp_path / "aws.csv"))
    assert by_folder == by_file
    assert sorted(belief.outcome.value for belief in by_folder.beliefs) == ["accept", "accept", "quarantine"]


def test_a_source_is_what_it_said_last(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="skypilot: no such file"):
        examine("skypilot")
    (tmp_path / "aws.csv").write_text(f"{HEADER}\n{LINES}broken\n")
    prices = wiring.open_prices()
    list(refresh(SkyPilotMarket(tmp_path / "aws.csv"), prices, wiring.price_facts()))
    (tmp_path / "aws.csv").unlink()
    found = examine("skypilot")
    assert sorted(belief.outcome.value for belief in found.beliefs) == ["accept", "accept", "quarantine"]
    assert found.unread == ("aws/*: aws.csv:4: 1 cells, the header has 9",)


def test_a_file_of_offers_that_breaks_midway_is_an_error(tmp_path: Path) -> None:
    good = (catalog_root() / "offers" / "lambda.csv").read_bytes()
    (tmp_path / "lambda.csv").write_bytes(good[:200] + b"\xff\xfe\n")
    with pytest.raises(ConfigError, match=r"lambda\.csv: cannot be read"):
        examine(str(tmp_path / "lambda.csv"))
