import gzip
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hexcloud.adapters.markets.history import load_history
from hexcloud.adapters.markets.price_formats import FORMATS, PriceFormat
from hexcloud.appraise.known import Known
from hexcloud.appraise.series import judge
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.offer import OfferId

AWS = "observed_at,instance_type,region,az_id,spot_usd_per_hour\n"
P5 = OfferId("aws/us-west-2/usw2-az1/p5.48xlarge/spot")


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def price(path: Path, offer_id: str, moment: str) -> float | None:
    quote = load_history(path).history.price_at(OfferId(offer_id), at(moment))
    return quote and quote.usd_per_hour


@pytest.fixture
def aws(tmp_path: Path) -> Path:
    path = tmp_path / "spot.csv"
    path.write_text(
        AWS
        + "2023-01-01T00:00:00Z,p5.48xlarge,us-west-2,usw2-az1,40.5\n"
        + "2023-01-02T00:00:00Z,p5.48xlarge,us-west-2,usw2-az1,\n"
        + "2023-01-03T00:00:00Z,p5.48xlarge,us-west-2,usw2-az1,41\n"
        + "2023-01-04T00:00:00Z,p5.48xlarge,us-west-2,usw2-az1,GONE\n"
    )
    return path


def test_a_price_holds_until_the_next_line_says_otherwise(aws: Path) -> None:
    days = ["2022-12-31", "2023-01-01", "2023-01-01T23:00", "2023-01-02", "2023-01-03", "2023-01-04"]
    assert [price(aws, P5, day) for day in days] == [None, 40.5, 40.5, None, 41.0, None]


def test_lines_that_are_no_prices_are_told_and_the_rest_is_read(aws: Path) -> None:
    with aws.open("a") as file:
        file.write("soon,p5.48xlarge,us-west-2,usw2-az1,40\n9999-01-01,p5.48xlarge,us-west-2,usw2-az1,40\n")
        file.write("2023-01-05,,us-west-2,usw2-az1,40\n2023-01-05,a/b,us-west-2,usw2-az1,40\n")
        file.write("2023-01-06,p5.48xlarge,us-west-2,usw2-az1,forty\n2023-01-07,p5.48xlarge,us-west-2\n")
    read = load_history(aws)
    assert [(found.rule, found.row, found.reason) for found in read.findings] == [
        ("bad_date", "spot.csv:6", "2 lines have no date that can be read, the first is line 6"),
        ("bad_name", "spot.csv:8", "3 lines name no offer, the first is line 8"),
    ]
    assert [found.rule for found in judge(read.history, Known()).findings("aws")] == ["no_price"]


def test_all_files_of_a_folder_are_one_history(aws: Path) -> None:
    other = "observed_at,instance_type,region,on_demand_usd_per_hour\n2023-01-01T00:00:00Z,p5.48xlarge,us-west-2,98.3\n"
    (aws.parent / "on-demand.csv").write_text(other)
    (aws.parent / "snapshots.csv").write_text("observed_at,commit,rows\n2023-01-01T00:00:00Z,abc,1\n")
    (aws.parent / "README.md").write_text("about")
    recorded = load_history(aws.parent).history
    assert recorded.ids == ("aws/us-west-2/-/p5.48xlarge/on_demand", P5)
    assert recorded.is_snapshots


def test_another_table_in_a_folder_is_named_with_what_was_expected(aws: Path) -> None:
    (aws.parent / "wages.csv").write_text("who,what\n")
    with pytest.raises(ConfigError, match=r"wages.csv: is no recording of prices that is known; the first line must"):
        load_history(aws.parent)
    (aws.parent / "nothing").mkdir()
    with pytest.raises(ConfigError, match="holds no recorded prices"):
        load_history(aws.parent / "nothing")


def test_prices_without_a_date_need_one_in_the_files_name(tmp_path: Path) -> None:
    text = "instance_type,region,on_demand_usd_per_hour\np5.48xlarge,us-east-1,55.04\n"
    for name, said in (("list.csv", "put their day into the file's name"), ("list-2026-99-01.csv", "is no date")):
        (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError, match=said):
            load_history(tmp_path / name)
    (tmp_path / "list-2026-07-20.csv").write_text(text)
    assert price(tmp_path / "list-2026-07-20.csv", "aws/us-east-1/-/p5.48xlarge/on_demand", "2026-07-21") == 55.04


def test_times_with_an_offset_are_moved_to_utc(tmp_path: Path) -> None:
    path = tmp_path / "gcp.csv.gz"
    header = "observed_at,machine_type,region,on_demand_usd_per_hour,spot_usd_per_hour\n"
    path.write_bytes(gzip.compress(f"{header}2024-08-17T14:36:16+02:00,a3-highgpu-8g,us-east4,88.5,GONE\n".encode()))
    quote = load_history(path).history.price_at(OfferId("gcp/us-east4/-/a3-highgpu-8g/on_demand"), at("2025-01-01"))
    assert quote is not None and (quote.usd_per_hour, quote.since_s) == (88.5, at("2024-08-17T12:36:16"))


def test_seventeen_months_of_aws_answer_the_price_at_any_time(spot_traces: Path) -> None:
    recorded = load_history(spot_traces / "aws-catalog-2022-12_2024-05").history
    spot = sum(recorded.series(one).stop - recorded.series(one).start for one in recorded.ids if one.endswith("/spot"))
    assert spot == 375_285
    judged = judge(recorded, Known())
    assert {rule for _, rule in judged.counts()} == {"", "step", "floor_price", "spot_equals_on_demand"}
    quote = judged.believed().price_at(OfferId("aws/us-east-1/use1-az6/p4d.24xlarge/spot"), at("2023-06-01"))
    assert quote is not None and quote.usd_per_hour is not None and 9 < quote.usd_per_hour < 33


@pytest.mark.parametrize(
    ("name", "events"),
    [
        ("aws-2022-05-31-ericpauley-gpu.csv.gz", 510),
        ("aws-gcp-2019-12_2020-03-training-on-a-dime", 16_560),
        ("gcp-pricing-2022-02_2026-07", 2 * 17_006),
        ("neocloud-2026-02_2026-07-observations.csv.gz", 33_654),
        ("aws-on-demand-2026-07-20.csv", 91),
        ("aws-on-demand-2025-11-30-all-regions.csv", 1157),
    ],
)
def test_every_published_shape_is_read_and_judged(spot_traces: Path, name: str, events: int) -> None:
    read = load_history(spot_traces / name)
    assert read.findings == ()
    assert read.history.at_s.size >= events
    judged = judge(read.history, Known())
    assert sum(judged.counts().values()) > 0.9 * events
    assert judged.believed().at(at("2030-01-01"))


def test_a_list_without_its_gpus_is_never_believed_and_a_real_step_is_at_the_next_snapshot(spot_traces: Path) -> None:
    """GCP's list left out the GPUs of this machine for a day in May 2023; the spot price of the other fell by 54 %."""
    believed = judge(load_history(spot_traces / "gcp-pricing-2022-02_2026-07").history, Known()).believed()

    def price(offer_id: str, day: str) -> float:
        quote = believed.price_at(OfferId(offer_id), at(day))
        assert quote is not None and quote.usd_per_hour is not None
        return round(quote.usd_per_hour, 2)

    repaired, stepped = "gcp/us-central1/-/a2-ultragpu-2g/on_demand", "gcp/us-east4/-/a3-highgpu-8g/spot"
    assert [price(repaired, day) for day in ("2023-05-08", "2023-05-09T23:59", "2023-05-11")] == [10.06] * 3
    assert [price(stepped, day) for day in ("2025-03-12", "2025-03-14", "2025-03-20")] == [35.64, 35.64, 16.32]


CELL = st.one_of(
    st.sampled_from(["2023-01-01T00:00:00Z", "2023-01-02", "GONE", "", "nan", "inf", "-3", "1e400", "40.5", "p5", '"']),
    st.text(max_size=6),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(FORMATS), st.lists(st.lists(CELL, max_size=9), max_size=6))
def test_whatever_the_cells_hold_there_is_an_answer_in_words(
    tmp_path: Path, found: PriceFormat, rows: list[list[str]]
) -> None:
    lines = [",".join(found.columns), *(",".join(row) for row in rows)]
    path = tmp_path / "list-2026-07-20.csv"
    path.write_text("\n".join(lines), errors="replace")
    read_and_judge(path)


def test_random_bytes_are_refused_in_words(tmp_path: Path) -> None:
    dice = random.Random(7)
    heads = [b"", b"\x1f\x8b\x08\x00", AWS.encode(), b"\xef\xbb\xbf" + AWS.encode(), b"\xff\xfe"]
    for _ in range(150):
        path = tmp_path / "noise-2026-07-20.csv"
        path.write_bytes(dice.choice(heads) + dice.randbytes(dice.randrange(400)))
        read_and_judge(path)


def read_and_judge(path: Path) -> None:
    try:
        read = load_history(path)
    except ConfigError as error:
        assert str(path) in str(error)
        return
    believed = judge(read.history, Known()).believed()
    for quote in believed.at(4e9).values():
        assert quote.usd_per_hour is None or quote.usd_per_hour > 0
