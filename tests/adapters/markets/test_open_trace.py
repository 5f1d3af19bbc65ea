import gzip
import random
from pathlib import Path

import pytest

from hexcloud.adapters.markets.open_trace import open_trace
from hexcloud.adapters.markets.recorded_trace import RecordedAvailability, RecordedPrices
from hexcloud.adapters.markets.trace import Trace
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.offer import OfferId

EVENTS = "# mine\nat_h,event,offer,usd_per_hour,count\n1,sold_out,*,,\n"
SPOT = OfferId("aws/us-west-2/usw2-az1/p5.48xlarge/spot")


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    header = "observed_at,instance_type,region,az_id,spot_usd_per_hour\n"
    rows = "".join(f"2023-06-{day:02}T00:00:00Z,p5.48xlarge,us-west-2,usw2-az1,{40 + day}\n" for day in range(1, 9))
    path = tmp_path / "spot.csv.gz"
    path.write_bytes(gzip.compress((header + rows).encode()))
    return path


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    path = tmp_path / "pool.json"
    path.write_text('{"metadata": {"gap_seconds": 3600}, "data": [1, 1, 0]}')
    return path


def test_each_kind_of_trace_is_told_by_its_content(prices: Path, pool: Path, tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("at_h,event,offer,usd_per_hour,count\n1,back,*,,\n")
    assert isinstance(open_trace("demo"), Trace)
    assert isinstance(open_trace(str(tmp_path / "own.csv")), Trace)
    assert isinstance(open_trace(str(prices)), RecordedPrices)
    assert isinstance(open_trace(f"{prices}@2023-06-03"), RecordedPrices)
    assert isinstance(open_trace(f"{pool}=aws/*"), RecordedAvailability)


def test_a_folder_of_recorded_prices_is_one_trace(prices: Path) -> None:
    assert open_trace(str(prices.parent)).name == prices.parent.name


def test_the_start_is_where_the_run_begins(pool: Path, tmp_path: Path) -> None:
    dated = tmp_path / "dated.txt"
    dated.write_text("2021-12-11, 10:00:00, 5\n2021-12-11, 11:00:00, 0\n2021-12-11, 12:00:00, 5\n")
    assert open_trace(f"{dated}@2021-12-11T11:30=aws/*").is_sold_out(SPOT, 0.0)
    assert not open_trace(f"{dated}=aws/*").is_sold_out(SPOT, 0.0)
    assert open_trace(f"{pool}=aws/*").is_sold_out(SPOT, 7200.0)


def test_a_wrong_trace_says_what_to_mend(prices: Path, pool: Path, tmp_path: Path) -> None:
    (tmp_path / "odd.csv").write_text("who,what\n")
    (tmp_path / "own.csv").write_text(EVENTS)
    for text, said in (
        (f"{prices}@2022-01-01", f"{prices}: the start 2022-01-01 is outside the recording, from 2023-06-01T00:00 to "),
        (f"{prices}@summer", f"{prices}: the start 'summer' is no date"),
        (str(pool), "records availability and names no offers; say which, such as"),
        (f"{pool}@2023-01-01=aws/*", "has no dates, so a run can only begin at its beginning"),
        (f"{tmp_path}/own.csv=aws/*", f"{tmp_path}/own.csv: is no recording, so it has no @START and no =OFFERS"),
        (f"{tmp_path}/odd.csv", f"{tmp_path}/odd.csv: is no recording of prices or availability that is known"),
        (f"{tmp_path}/odd.csv", "the first line must be at_h,event,offer,usd_per_hour,count$"),
        (f"{tmp_path}/gone.csv", "cannot be read"),
        ("clam", "did you mean calm"),
    ):
        with pytest.raises(ConfigError, match=said):
            open_trace(text)


def test_events_may_be_packed_like_recordings(tmp_path: Path) -> None:
    (tmp_path / "own.csv.gz").write_bytes(gzip.compress(EVENTS.encode()))
    trace = open_trace(str(tmp_path / "own.csv.gz"))
    assert (trace.name, trace.is_sold_out(SPOT, 3600.0)) == ("own", True)


@pytest.mark.parametrize("content", [b"# hexcloud\n\nplain words\n", b"\x00\xff\xfe\x80" * 9])
def test_what_is_no_trace_at_all_is_told_what_a_trace_is(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "README.md"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as told:
        open_trace(str(file))
    for words in (str(file), "is no recording of prices or availability", "past-prices.md", "at_h,event,offer"):
        assert words in str(told.value)


def test_events_that_are_no_text_are_refused_without_words_of_a_codec(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_bytes(EVENTS.encode() + b"2,back,\xff,,\n")
    with pytest.raises(ConfigError, match=r"own.csv: not UTF-8 text \(byte \d+\)$"):
        open_trace(str(tmp_path / "own.csv"))


def test_a_price_list_of_one_moment_is_for_refresh(tmp_path: Path) -> None:
    (tmp_path / "aws").mkdir()
    (tmp_path / "aws" / "vms.csv").write_text("InstanceType,AcceleratorName,Price\np5.48xlarge,H100,55.04\n")
    with pytest.raises(ConfigError, match=f"`hexcloud catalog refresh --from {tmp_path}/aws/vms.csv`$"):
        open_trace(f"{tmp_path}/aws/vms.csv")


def test_ones_own_folder_is_not_taken_for_a_bundled_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"trace 'empty' is unknown; your own is ./empty$"):
        open_trace("empty")


def test_random_bytes_are_a_trace_or_refused_in_words(tmp_path: Path) -> None:
    dice = random.Random(11)
    heads = [b"", b"{", b'{"metadata": {"gap_seconds": 1}, "data": [', b"1,add,a\n", b"\x1f\x8b", b"at_h,event,offer,"]
    for _ in range(200):
        path = tmp_path / "noise.csv"
        path.write_bytes(dice.choice(heads) + dice.randbytes(dice.randrange(60)))
        for text in (str(path), f"{path}=aws/*", f"{path}@2023-01-01"):
            try:
                open_trace(text).is_sold_out(SPOT, 0.0)
            except ConfigError as error:
                assert "noise.csv" in str(error)
