from pathlib import Path

import pytest

from hexcloud.cli.tracks import Change, Track, Tracks, recorded_tracks
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.offer import OfferId

A = OfferId("aws/us-west-2/usw2-az1/p5.48xlarge/spot")
AWS = "observed_at,instance_type,region,az_id,spot_usd_per_hour\n"


def track(*changes: tuple[float, float | None]) -> Track:
    return Track(A, "list", tuple(Change(at_s, price) for at_s, price in changes), confirmed_s=100.0)


def test_the_change_in_force_is_the_last_one_before() -> None:
    told = track((10, 1.0), (20, None))
    assert [told.change_at(at_s) for at_s in (9, 10, 19, 20)] == [None, *[Change(10, 1.0)] * 2, Change(20, None)]


def test_a_part_of_a_track_begins_with_what_was_in_force_and_keeps_its_age() -> None:
    told = track((10, 1.0), (20, 2.0), (30, 3.0), (40, 4.0))
    assert [change.at_s for change in told.between(25, 35).changes] == [20, 30]
    assert [change.at_s for change in told.between(0, 10).changes] == [10]
    assert told.between(0, 5).changes == ()
    assert told.between(25, 35).confirmed_s == 35


def test_a_sparkline_rises_with_the_price_and_has_gaps_where_there_is_none() -> None:
    assert track((0, 1.0), (10, 2.0), (20, None), (30, 3.0)).sparkline(0, 40, width=4) == "▁▅ █"
    assert track((0, 2.0)).sparkline(0, 40, width=4) == "▅▅▅▅"
    assert track((90, 2.0)).sparkline(0, 40, width=4) == "    "


def test_a_span_is_that_of_all_offers() -> None:
    found = Tracks((track((10, 1.0)), track((5, 1.0))))
    assert (found.first_s, found.last_s) == (5, 100)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "spot.csv"
    rows = [(1, 40.0), (2, 40.0), (3, 90.0), (4, 41.0), (5, "")]
    path.write_text(AWS + "".join(f"2023-06-{d:02},p5.48xlarge,us-west-2,usw2-az1,{p}\n" for d, p in rows))
    return path


def test_a_recording_gives_what_is_believed_of_it_without_repeats(recording: Path, home: Path) -> None:
    found = recorded_tracks(recording, "aws/*/spot")
    (one,) = found.tracks
    assert [change.usd_per_hour for change in one.changes] == [40.0, 41.0, None]
    assert [finding.rule for finding in found.findings] == ["step"]


def test_a_machine_type_by_itself_is_every_offer_of_it(recording: Path, home: Path) -> None:
    assert recorded_tracks(recording, "p5.48xlarge") == recorded_tracks(recording, "aws/*/spot")


def test_an_offer_that_is_not_recorded_is_answered_with_the_likely_one(recording: Path, home: Path) -> None:
    with pytest.raises(ConfigError, match=r"did you mean aws/us-west-2/usw2-az1/p5\.48xlarge/spot"):
        recorded_tracks(recording, "aws/us-west-2/usw2-az9/p5.48xlarge/spot")


def test_an_offer_of_which_nothing_is_believed_says_why(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "spot.csv"
    path.write_text(f"{AWS}2023-06-01,p5.48xlarge,us-west-2,usw2-az1,0\n")
    with pytest.raises(ConfigError, match="no price is believed: the price is not a positive number"):
        recorded_tracks(path, "*")
