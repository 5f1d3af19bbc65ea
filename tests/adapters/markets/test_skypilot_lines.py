"""Lines of SkyPilot's files: found wherever they lie, cut with limits, each on its own."""

import gzip
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.adapters.markets import skypilot_lines
from hexcloud.adapters.markets.skypilot_lines import Faults, PriceList, lines, price_lists, short_name

HEADER = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone"
LINE = "p3.2xlarge,V100,1,8,61,,3.06,0.9,us-east-1,use1-az1"
DAY = datetime(2024, 5, 1, tzinfo=UTC)


def written(path: Path, *texts: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(texts) + "\n")
    return path


def test_price_lists_are_found_nested_flat_packed_and_alone(tmp_path: Path) -> None:
    nested = written(tmp_path / "v8" / "aws" / "vms.csv", HEADER)
    for beside in ("aws/images.csv", "aws/instance_quota_mapping.csv", "common/accelerators.csv", "aws/notes.txt"):
        written(tmp_path / "v8" / beside, "x")
    assert price_lists(tmp_path / "v8") == (PriceList(nested, "aws"),)
    flat = tmp_path / "flat"
    for name in ("azure.csv", "gcp-hosts.csv", "gcp-accelerator-quota-mapping.csv", "lambda.csv.gz", "readme.md"):
        written(flat / name, HEADER)
    assert [(found.path.name, found.cloud) for found in price_lists(flat)] == [
        ("azure.csv", "azure"),
        ("gcp-hosts.csv", "gcp"),
        ("lambda.csv.gz", "lambda"),
    ]
    assert price_lists(nested) == (PriceList(nested, "aws"),)
    assert short_name(nested) == "aws/vms.csv"


def test_a_line_is_read_by_column_name_in_any_order(tmp_path: Path) -> None:
    path = written(tmp_path / "x.csv", "Region,Price,AcceleratorCount,AcceleratorName,InstanceType", "here,nan,8,L4,g6")
    (line,) = lines(path, faults := Faults(), DAY)
    assert (line.cell("Region"), line.cell("InstanceType"), line.place, line.as_of) == ("here", "g6", "x.csv:2", DAY)
    assert line.cell("Price") == "" and line.cell("SpotPrice") == "" and line.cell("AvailabilityZone") == ""
    assert faults.count == 0 and str(faults) == ""


def test_packed_files_a_byte_order_mark_and_blank_lines_are_no_trouble(tmp_path: Path) -> None:
    path = tmp_path / "aws.csv.gz"
    path.write_bytes(gzip.compress(f"\ufeff{HEADER}\r\n\r\n{LINE}\r\n\r\n".encode()))
    (line,) = lines(path, faults := Faults())
    assert line.cell("InstanceType") == "p3.2xlarge" and line.place == "aws.csv.gz:3" and faults.count == 0


@pytest.mark.parametrize(
    "broken",
    [
        b"p3.2xlarge,V100,1\n",
        LINE.encode() + b",one,more\n",
        b'"p3.2xlarge,V100,1,8,61,,3.06,0.9,us-east-1,use1-az1\n',
        b"\xff\xfe\x00garbage\n",
        b"x" * (skypilot_lines.MAX_LINE_BYTES * 2) + b"\n",
        b"\x00\x00\x00\n",
    ],
    ids=["too few cells", "too many", "open quote", "no text", "too long", "zeros"],
)
def test_a_broken_line_costs_itself_and_a_word(tmp_path: Path, broken: bytes) -> None:
    path = tmp_path / "aws.csv"
    path.write_bytes(f"{HEADER}\n{LINE}\n".encode() + broken + f"{LINE}\n".encode())
    found = list(lines(path, faults := Faults()))
    assert [line.cell("Price") for line in found] == ["3.06", "3.06"]
    assert faults.count >= 1 and "aws.csv:3" in str(faults)


def test_a_file_that_is_no_catalog_says_why(tmp_path: Path) -> None:
    for name, content, word in (
        ("a.csv", b"region,price\nx,1\n", "column InstanceType is missing"),
        ("b.csv", b"", "is empty"),
        ("c.csv.gz", gzip.compress(f"{HEADER}\n{LINE}\n".encode() * 999)[:60], "cannot be read"),
    ):
        (tmp_path / name).write_bytes(content)
        list(lines(tmp_path / name, faults := Faults()))
        assert word in str(faults), name
    assert list(lines(tmp_path / "none.csv", faults := Faults())) == [] and "No such file" in str(faults)
    assert list(lines(tmp_path, faults := Faults())) == [] and "no file" in str(faults)


def test_a_file_that_unfolds_without_end_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skypilot_lines, "MAX_FILE_BYTES", 10_000)
    (tmp_path / "aws.csv").write_bytes(gzip.compress(f"{HEADER}\n".encode() + f"{LINE}\n".encode() * 10_000))
    found = list(lines(tmp_path / "aws.csv", faults := Faults()))
    assert 100 < len(found) < 300 and "the rest is not read" in str(faults) and faults.is_cut


@given(st.one_of(st.binary(max_size=4000), st.text(max_size=2000).map(lambda text: f"{HEADER}\n{text}".encode())))
def test_no_bytes_raise_or_hang(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.csv"
    path.write_bytes(content)
    faults = Faults()
    assert all(len(line.cells) >= len(skypilot_lines.NEEDED) for line in lines(path, faults))
