"""Where a price list comes from: a path, the bundle, or what a source said last."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hexcloud import wiring
from hexcloud.adapters.files import catalog_root
from hexcloud.adapters.markets.skypilot import SkyPilotMarket
from hexcloud.cli.examine import examine
from hexcloud.controller.refresh import refresh
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.market import Outcome
from hexcloud.domain.row import Part

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
    _refresh(tmp_path / "aws.csv")
    (tmp_path / "aws.csv").unlink()
    found = examine("skypilot")
    assert sorted(belief.outcome.value for belief in found.beliefs) == ["accept", "accept", "quarantine"]
    assert found.unread == ("aws/*: aws.csv:4: 1 cells, the header has 9",)


def _refresh(path: Path) -> None:
    source, prices, now = SkyPilotMarket(path), wiring.open_prices(), datetime.now(UTC)
    assert all(
        report.rows for report in refresh(source, prices, wiring.price_facts(), lambda: now) if report.region != "*"
    )


def test_a_row_that_waits_while_its_old_price_stands_counts_once(tmp_path: Path) -> None:
    line = "p4d.24xlarge,A100,8,96,1152,{},,us-east-1,use1-az1\n"
    for price in ("21.96", "9.00"):
        (tmp_path / "aws.csv").write_text(f"{HEADER}\n{line.format(price)}")
        _refresh(tmp_path / "aws.csv")
    (belief,) = examine("skypilot").beliefs
    assert (belief.row.price, belief.outcome) == (9.0, Outcome.QUARANTINE)
    assert [belief.row.price for belief in wiring.open_prices().current()] == [21.96]


def test_a_price_list_from_the_future_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "aws.csv"
    path.write_text(f"{HEADER}\n{LINES}")
    tomorrow = time.time() + 86400
    os.utime(path, (tomorrow, tomorrow))
    assert {belief.outcome for belief in examine(str(path)).beliefs} == {Outcome.REJECT}


def test_a_file_of_offers_that_breaks_midway_is_an_error(tmp_path: Path) -> None:
    good = (catalog_root() / "offers" / "lambda.csv").read_bytes()
    (tmp_path / "lambda.csv").write_bytes(good[:200] + b"\xff\xfe\n")
    with pytest.raises(ConfigError, match=r"lambda\.csv: cannot be read"):
        examine(str(tmp_path / "lambda.csv"))


def test_a_failure_as_a_whole_is_told_until_the_source_answers_again() -> None:
    prices, at = wiring.open_prices(), datetime(2026, 11, 1, tzinfo=UTC)
    broken = Part(source="aws", cloud="aws", region="*", as_of=at, problem="credentials have expired")
    prices.save_part(broken, ())
    assert examine("aws").unread == ("aws/*: credentials have expired",)
    prices.save_part(Part(source="aws", cloud="aws", region="us-east-1", as_of=at + timedelta(hours=1)), ())
    assert examine("aws").unread == ()
