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


def test_a_cloud_that_nobody_can_ask_is_wrong_input() -> None:
    with pytest.raises(ConfigError, match=r"'azure' has no live source.*--from"):
        price_sources(PriceQuestion(clouds=("azure",)))


def test_now_is_the_real_moment_in_utc() -> None:
    assert abs((now() - datetime.now(UTC)).total_seconds()) < 60
