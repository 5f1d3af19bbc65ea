from datetime import UTC, datetime
from pathlib import Path

import pytest

from hexcloud.adapters.markets.aws import AwsMarket
from hexcloud.adapters.markets.gcp import GcpMarket
from hexcloud.adapters.markets.skypilot import SkyPilotMarket
from hexcloud.adapters.markets.sources import PriceQuestion, now, price_sources
from hexcloud.domain.errors import ConfigError


def test_without_a_word_every_live_cloud_is_asked() -> None:
    assert [type(source) for source in price_sources(PriceQuestion())] == [AwsMarket, GcpMarket]


def test_one_cloud_may_be_asked() -> None:
    assert [type(source) for source in price_sources(PriceQuestion(clouds=("gcp",)))] == [GcpMarket]


def test_a_folder_is_read_instead_of_the_clouds(tmp_path: Path) -> None:
    (source,) = price_sources(PriceQuestion(folder=tmp_path, clouds=("azure",)))
    assert isinstance(source, SkyPilotMarket)


def test_regions_narrow_files_too(tmp_path: Path) -> None:
    header = "InstanceType,AcceleratorName,AcceleratorCount,Region,Price"
    (tmp_path / "neo.csv").write_text(f"{header}\nbig8,H100,8,eu,20\nbig8,H100,8,us,20\n")
    (source,) = price_sources(PriceQuestion(folder=tmp_path, regions=("e*",)))
    assert [part.region for part in source.fetch()] == ["eu"]


def test_a_cloud_that_nobody_can_ask_is_wrong_input() -> None:
    with pytest.raises(ConfigError, match=r"'azure' has no live source.*--from"):
        price_sources(PriceQuestion(clouds=("azure",)))


def test_days_before_are_asked_of_clouds_that_keep_them() -> None:
    assert [type(source) for source in price_sources(PriceQuestion(past_days=90))] == [AwsMarket, GcpMarket]


@pytest.mark.parametrize(
    ("question", "says"),
    [
        (PriceQuestion(clouds=("aws",), past_days=120), "--history 120d: aws keeps 90 days"),
        (PriceQuestion(clouds=("aws", "gcp"), past_days=30), "gcp keeps no past prices; leave out --cloud gcp"),
        (PriceQuestion(folder=Path("sky"), past_days=30), "files hold no past prices; leave out --from"),
        (PriceQuestion(clouds=("aws",), as_of=datetime(2026, 7, 1, tzinfo=UTC)), "--as-of dates the prices of files"),
    ],
)
def test_what_no_source_can_do_is_wrong_input(question: PriceQuestion, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        price_sources(question)


def test_now_is_the_real_moment_in_utc() -> None:
    assert abs((now() - datetime.now(UTC)).total_seconds()) < 60
