import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hexcloud import wiring
from hexcloud.domain.market import Outcome
from hexcloud.domain.row import Belief, Part, Row

AWS = "observed_at,instance_type,region,az_id,spot_usd_per_hour\n"
P5 = "aws/us-west-2/usw2-az1/p5.48xlarge/spot"


@pytest.fixture
def recording(tmp_path: Path) -> str:
    path = tmp_path / "spot.csv"
    rows = [(day, zone, 40 + day + zone) for zone in (1, 2) for day in range(1, 29)]
    lines = (f"2023-06-{day:02}T00:00:00Z,p5.48xlarge,us-west-2,usw2-az{zone},{price}\n" for day, zone, price in rows)
    path.write_text(AWS + "".join(lines))
    return str(path)


def test_every_zone_has_a_line_and_its_last_changes_with_their_age(cli: Callable[..., Any], recording: str) -> None:
    said = cli("catalog", "history", "aws/*/p5.48xlarge/spot", "--from", recording)
    assert said.code == 0
    assert "▁" in said.out and "█" in said.out and said.out.count("usw2-az2") == 2
    assert "69.0000" in said.out and "+1.5%" in said.out and "2 days" in said.out
    assert "16 earlier changes" in said.err


def test_many_offers_are_a_table_and_no_lists(cli: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "spot.csv"
    path.write_text(AWS + "".join(f"2023-06-0{d},p5.48xlarge,r1,az{z},40\n" for d in (1, 2) for z in range(9)))
    said = cli("catalog", "history", "*", "--from", str(path))
    assert said.out.count("p5.48xlarge/spot") == 9
    assert "9 offers; name at most 8 to see their changes" in said.err


def test_a_period_begins_with_the_price_in_force(cli: Callable[..., Any], recording: str) -> None:
    asked = ("--since", "2023-06-10T12:00", "--until", "2023-06-12T12:00", "--json")
    told = json.loads(cli("catalog", "history", P5, "--from", recording, *asked).out)
    (track,) = told["tracks"]
    assert [(change["at"][:10], change["usd_per_hour"]) for change in track["changes"]] == [
        ("2023-06-10", 51.0),
        ("2023-06-11", 52.0),
        ("2023-06-12", 53.0),
    ]


def test_a_recording_of_one_moment_has_a_price_then_and_a_line(cli: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "spot.csv"
    path.write_text(AWS + "2023-06-01,p5.48xlarge,us-west-2,usw2-az1,40\n")
    asked = ("catalog", "history", P5, "--from", str(path))
    (then,) = json.loads(cli(*asked, "--at", "2023-06-01", "--json").out)
    assert then["usd_per_hour"] == 40.0
    assert "40.0000" in cli(*asked).out
    said = cli(*asked, "--since", "2023-06-02")
    assert said.code == 2 and "--since must be before --until" in said.err


def test_the_price_at_a_moment_is_that_of_the_change_before(cli: Callable[..., Any], recording: str) -> None:
    asked = ("catalog", "history", "aws/*/spot", "--from", recording, "--at", "2023-06-20T18:30")
    assert [(one["offer_id"], one["usd_per_hour"], one["since"]) for one in json.loads(cli(*asked, "--json").out)] == [
        (P5, 61.0, "2023-06-20T00:00:00+00:00"),
        (P5.replace("az1", "az2"), 62.0, "2023-06-20T00:00:00+00:00"),
    ]
    assert "18 h" in cli(*asked).out
    assert "2 more offers have no price before that" in cli(*asked[:-1], "2023-05-01").err


def test_price_steps_are_drawn(cli: Callable[..., Any], recording: str, tmp_path: Path) -> None:
    picture = tmp_path / "steps.png"
    said = cli("catalog", "history", "aws/*/spot", "--from", recording, "--plot", str(picture))
    assert said.code == 0 and str(picture) in said.err
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--at", "noon"), "--at 'noon' is no date"),
        (("--since", "2023-06-20", "--until", "2023-06-10"), "--since must be before --until"),
        (("--plot", "steps.txt"), "must end in .png"),
        (("--at", "2023-06-20", "--plot", "steps.png"), "--at shows one moment; leave out --since"),
        (("--from", "/nowhere"), "cannot be read"),
    ],
)
def test_a_wrong_option_is_named(cli: Callable[..., Any], recording: str, options: tuple[str, ...], said: str) -> None:
    answer = cli("catalog", "history", P5, "--from", recording, *options)
    assert answer.code == 2
    assert said in answer.err


def test_without_a_recording_the_memory_of_prices_is_read(cli: Callable[..., Any]) -> None:
    said = cli("catalog", "history", P5)
    assert said.code == 2 and "no price of" in said.err
    prices = wiring.open_prices()
    for day, price in ((1, 40.0), (2, 41.0), (3, 41.0)):
        moment = datetime(2026, 6, day, tzinfo=UTC)
        row = Row(
            cloud="aws",
            region="us-west-2",
            zone="usw2-az1",
            instance_type="p5.48xlarge",
            tenure="spot",
            gpu="H100",
            gpu_count=8,
            vcpus=192,
            memory_gib=2048,
            network_gb_per_s=400,
            price=price,
            as_of=moment.isoformat(),
            source="aws",
        )
        part = Part(source="aws", cloud="aws", region="us-west-2", as_of=moment, rows=(row,))
        prices.save_part(part, (Belief(row=row, outcome=Outcome.ACCEPT),))
    (track,) = json.loads(cli("catalog", "history", "aws/*", "--json").out)["tracks"]
    assert [change["usd_per_hour"] for change in track["changes"]] == [40.0, 41.0]
    assert track["confirmed"] == "2026-06-03T00:00:00+00:00"
    assert "years" not in cli("catalog", "history", P5, "--until", "2026-06-04").out
