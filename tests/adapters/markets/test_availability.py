import gzip
import random
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.adapters.markets.availability import Availability, read_availability
from hexcloud.domain.errors import ConfigError


def read(text: str) -> Availability:
    found = read_availability("some.txt", text.encode())
    assert found is not None
    return found


def counts(found: Availability) -> list[tuple[float, int]]:
    return list(zip(found.at_s.tolist(), found.count.tolist(), strict=True))


def test_samples_at_a_fixed_gap() -> None:
    found = read('{"metadata": {"gap_seconds": 300}, "data": [0, 0, 16, 16, 7, 0]}')
    assert counts(found) == [(0, 0), (600, 16), (1200, 7), (1500, 0)]
    assert found.start_s is None
    assert [found.count_at(at_s) for at_s in (-1, 0, 599, 600, 9999)] == [0, 0, 0, 16, 0]
    assert found.falls(600, 1500) == ((1200, 9), (1500, 7))
    assert found.falls(1200, 1499) == ()


def test_nodes_that_come_and_go() -> None:
    found = read("480000,add,node1\n540000,add,node2\n540000,add,node2\n600000,remove,node1\n600000,remove,node9\n")
    assert counts(found) == [(0, 1), (60, 2), (120, 1)]


def test_dated_counts_out_of_order() -> None:
    found = read("2021-12-11, 11:11:30, 55\n2021-12-11, 11:13:10, 54\n2021-12-11, 11:12:00, 60\n")
    assert counts(found) == [(0, 55), (30, 60), (100, 54)]
    assert found.start_s == datetime(2021, 12, 11, 11, 11, 30, tzinfo=UTC).timestamp()


def test_hours_and_counts_where_a_moment_is_given_before_and_after() -> None:
    assert counts(read("0.5,0\n1.0,0\n1.0,9\n2.5,9\n2.5,2\n")) == [(0, 0), (1800, 9), (7200, 2)]


def test_a_log_of_one_who_keeps_asking() -> None:
    found = read(
        "[2020-03-15T10:00:00.000Z] Created instance i-1 with 1 GPU(s) of type v100 in zone us-east-1b\n"
        "[2020-03-15T10:00:30.000Z] Created instance i-2 with 8 GPU(s) of type v100 in zone us-east-1b\n"
        "[2020-03-15T10:01:00.000Z] Instance with 8 GPU(s) of type k80 creation failed\n"
        "[2020-03-15T10:02:00.000Z] Instance i-1 running in zone us-east-1b\n"
        "[2020-03-15T10:03:00.000Z] Instance i-1 not running in zone us-east-1b\n"
        "[2020-03-15T10:04:00.000Z] Successfully deleted instance i-2\n"
        "[2020-03-15T10:05:00.000Z] Instance instance7 creation failed\n"
    )
    assert counts(found) == [(0, 1), (30, 2), (180, 1), (240, 0)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"metadata": {}, "data": [1]}', "must be"),
        ('{"metadata": {"gap_seconds": 5}, "data": 7}', "must be"),
        ('{"metadata": {"gap_seconds": 5}, "data": []}', "records nothing"),
        ('{"metadata": {"gap_seconds": 0}, "data": [1]}', "gap_seconds is 0"),
        ('{"metadata": {"gap_seconds": NaN}, "data": [1]}', "gap_seconds is nan"),
        ('{"metadata": {"gap_seconds": 5}, "data": [1, -1]}', r"data\[1\] is '-1'"),
        ('{"metadata": {"gap_seconds": 5}, "data": [1, 0.5]}', r"data\[1\] is '0.5'"),
        ('{"metadata": {"gap_seconds": 5}, "data": [1, true]}', r"data\[1\] is 'True'"),
        ('{"metadata": {"gap_seconds": 5}, "data": [9999999]}', r"data\[0\] is '9999999'"),
        ("{" * 100_000, "must be"),
        ('{"data":' + "[" * 100_000, "must be"),
        ("1,add,a\n2,steal,a\n", "line 2: 'steal' is neither add nor remove"),
        ("1,add,a\n2,add\n", "line 2: 2 cells instead of 3"),
        ("1,add,a\nnan,add,b\n", "line 2: 'nan' is no time"),
        ("1.0,5\n2.0,-5\n", "line 2 is '-5'"),
        ("2021-12-11, 11:11:30, 5\n2021-13-11, 11:11:30, 5\n", "line 2: '2021-13-11T11:11:30' is no date"),
        ("[2020-03-15T10:00:00Z] Created instance a with\nhello\n", "line 2: does not begin with"),
    ],
)
def test_a_wrong_line_is_named(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_availability("some.txt", text.encode())


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b"at_h,event\n", b"hello", b"observed_at,price\n1,2\n"])
def test_what_has_none_of_the_shapes_is_no_recording(content: bytes) -> None:
    assert read_availability("x", content) is None


def test_random_bytes_after_a_right_beginning_are_refused_in_words() -> None:
    dice = random.Random(3)
    heads = [b"{", b"1,add,a\n", b"2021-12-11, 11:11:30, 5\n", b"0.5,3\n", b"[2020-03-15T10:00:00Z] x\n"]
    for _ in range(300):
        try:
            found = read_availability("noise", dice.choice(heads) + dice.randbytes(dice.randrange(80)))
        except ConfigError as error:
            assert str(error).startswith("noise")
        else:
            assert found is not None


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.lists(st.integers(-2, 40), max_size=6))
def test_however_time_is_cut_no_fall_is_missed_or_doubled(data: list[int], cuts: list[int]) -> None:
    found = read(f'{{"metadata": {{"gap_seconds": 1}}, "data": {data}}}')
    edges = sorted({-3, 50, *cuts})
    fell = [lost for first, last in pairwise(edges) for _, lost in found.falls(first, last)]
    assert fell == [before - after for before, after in pairwise(data) if after < before]


@pytest.mark.parametrize(
    ("name", "most", "hours"),
    [
        ("cant-be-late-skypilot/availability__16-node__aws-08-27-2023__us-east-2b_v100_1.json.gz", 16, None),
        ("cant-be-late-skypilot/preemption__4-node__aws-08-03-2023__us-west-2c_v100_1.json.gz", 4, None),
        ("bamboo/p3-trace.csv", 33, None),
        ("bamboo/g4dn-trace.csv", None, None),
        ("bamboo/aws-p2-xlarge-2020-11-20_23.csv", 16, 89),
        ("bamboo/gcp-a100x1-us-east1-b.txt", None, 27),
        ("bamboo/gcp-v100x1-us-east1-c.txt", 80, None),
        ("aws-gcp-2019-12_2020-03-training-on-a-dime/aws-persistent_2020-03-15.log.gz", None, None),
        ("aws-gcp-2019-12_2020-03-training-on-a-dime/gcp-persistent_2020-03-04.log.gz", None, 74),
    ],
)
def test_every_published_shape_is_read(spot_traces: Path, name: str, most: int | None, hours: float | None) -> None:
    content = (spot_traces / name).read_bytes()
    found = read_availability(name, gzip.decompress(content) if name.endswith(".gz") else content)
    assert found is not None and found.count.min() >= 0 and len(found.at_s) > 5
    assert most is None or found.count.max() <= most
    assert hours is None or abs(found.at_s[-1] / 3600 - hours) < 2


def test_all_recordings_of_one_request_are_read(spot_traces: Path) -> None:
    files = sorted((spot_traces / "cant-be-late-skypilot").glob("*.json.gz"))
    assert len(files) == 27
    for file in files:
        assert read_availability(file.name, gzip.decompress(file.read_bytes())) is not None
