"""SkyPilotMarket: one part per cloud and region, whatever lies in the folder."""

import gzip
import os
import random
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hexcloud.adapters.markets import skypilot
from hexcloud.adapters.markets.skypilot import SkyPilotMarket
from hexcloud.domain.row import Part

AWS = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone"
P3 = "p3.2xlarge,V100,1.0,8,61,,3.06,0.9,us-east-1,use1-az1"
P4 = "p4d.24xlarge,A100,8.0,96,1152,,21.96,7.5,us-west-2,usw2-az2"
CPU = "m6i.large,,,2,8,,0.1,0.04,us-east-1,use1-az1"
GCP = "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice"
HOST = "a2-highgpu-1g,12,85,,,,us-central1,us-central1-a,0.74,0.3"
GPU = ",,,A100,1.0,{'Gpus': [{'MemoryInfo': {'SizeInMiB': 40960}}]},us-central1,us-central1-a,2.93,1.17"
DAY = datetime(2024, 5, 1, tzinfo=UTC)


def put(folder: Path, name: str, *texts: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(texts) + "\n")
    return path


def parts(path: Path, *clouds: str, as_of: datetime | None = DAY) -> list[Part]:
    return list(SkyPilotMarket(path, as_of, clouds).fetch())


def ids(found: list[Part]) -> list[str]:
    return [row.id for part in found for row in part.rows]


def test_skypilots_own_folder_gives_a_part_for_each_region(tmp_path: Path) -> None:
    put(tmp_path, "aws/vms.csv", AWS, P3, P4, CPU)
    put(tmp_path, "gcp/vms.csv", GCP, HOST, GPU)
    put(tmp_path, "aws/images.csv", "Tag,Region")
    found = parts(tmp_path)
    assert [(part.source, part.cloud, part.region, len(part.rows), part.problem) for part in found] == [
        ("skypilot", "aws", "us-east-1", 2, ""),
        ("skypilot", "aws", "us-west-2", 2, ""),
        ("skypilot", "gcp", "us-central1", 2, ""),
    ]
    assert [row.price for row in found[2].rows] == [3.67, 1.47]
    assert all(part.as_of == DAY for part in found)


def test_a_flat_folder_joins_all_that_is_said_of_a_cloud(tmp_path: Path) -> None:
    put(tmp_path, "gcp.csv", GCP, GPU)
    put(tmp_path, "gcp-hosts.csv", GCP, HOST)
    put(tmp_path, "aws.csv", AWS, P3)
    put(tmp_path, "v8-subset.csv", f"Cloud,{AWS}", f"AWS,{P4}", f"aws,{P3.replace('3.06', '3.07')}")
    found = parts(tmp_path)
    assert [(part.cloud, part.region, len(part.rows)) for part in found] == [
        ("aws", "us-east-1", 4),
        ("aws", "us-west-2", 2),
        ("gcp", "us-central1", 2),
    ]


def test_one_packed_file_will_do(tmp_path: Path) -> None:
    (tmp_path / "aws.csv.gz").write_bytes(gzip.compress(f"{AWS}\n{P3}\n".encode()))
    assert ids(parts(tmp_path / "aws.csv.gz")) == [
        "aws/us-east-1/use1-az1/p3.2xlarge/on_demand",
        "aws/us-east-1/use1-az1/p3.2xlarge/spot",
    ]


def test_only_the_regions_asked_for_are_read(tmp_path: Path) -> None:
    put(tmp_path, "aws.csv", AWS, P3, P4)
    (found,) = SkyPilotMarket(tmp_path, DAY, regions=("us-e*",)).fetch()
    assert (found.region, len(found.rows)) == ("us-east-1", 2)
    (nothing,) = SkyPilotMarket(tmp_path, DAY, regions=("eu-*", "ap-*")).fetch()
    assert nothing.problem == f"{tmp_path}: lists nothing in eu-*, ap-*"


def test_a_small_file_that_unfolds_into_too_many_machines_is_left_out_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skypilot, "MAX_LINES", 50)
    put(tmp_path, "aws.csv", AWS, P3)
    (tmp_path / "azure.csv.gz").write_bytes(gzip.compress(f"{AWS}\n".encode() + f"{P4}\n".encode() * 1000))
    put(tmp_path, "lambda.csv", AWS, P4)
    bomb, aws, other = parts(tmp_path)
    assert bomb.problem == "azure.csv.gz:51: over 50 machines with GPUs in all; nothing of this file is taken"
    assert [(part.cloud, part.region, part.problem) for part in (bomb, aws, other)][1:] == [
        ("aws", "us-east-1", ""),
        ("lambda", "us-west-2", ""),
    ]


def test_of_a_file_that_is_cut_off_nothing_is_taken(tmp_path: Path) -> None:
    text = "\n".join([AWS, *(P3.replace("3.06", f"{random.random()}") for _ in range(5000))])
    (tmp_path / "aws.csv.gz").write_bytes(gzip.compress(text.encode())[:-1000])
    (found,) = parts(tmp_path)
    assert "aws.csv.gz: cannot be read" in found.problem and found.rows == ()


def test_only_the_clouds_asked_for_are_read(tmp_path: Path) -> None:
    put(tmp_path, "aws.csv", AWS, P3)
    put(tmp_path, "azure.csv", "nonsense")
    assert {part.cloud for part in parts(tmp_path, "aws")} == {"aws"}
    (gone,) = parts(tmp_path, "oci")
    assert gone.cloud == "oci" and "lists nothing of cloud 'oci'" in gone.problem


def test_prices_are_as_old_as_the_file_unless_somebody_knows_better(tmp_path: Path) -> None:
    path = put(tmp_path, "aws.csv", AWS, P3)
    os.utime(path, (1.7e9, 1.7e9))
    (part,) = parts(tmp_path, as_of=None)
    assert part.as_of == datetime.fromtimestamp(1.7e9, UTC) and part.rows[0].as_of == part.as_of.isoformat()
    (part,) = parts(tmp_path, as_of=datetime(2024, 5, 1))
    assert part.as_of == DAY and part.rows[0].as_of == DAY.isoformat()


def test_what_cannot_be_read_is_a_problem_and_the_rest_is_read(tmp_path: Path) -> None:
    put(tmp_path, "azure.csv", "region,price", "x,1")
    put(tmp_path, "aws.csv", AWS, P3, "half a li")
    azure, aws, east = sorted(parts(tmp_path), key=lambda part: (not part.problem, part.cloud == "aws"))
    assert (azure.cloud, azure.region) == ("azure", "*") and "column InstanceType is missing" in azure.problem
    assert (aws.cloud, aws.region) == ("aws", "*") and "aws.csv:3" in aws.problem and aws.rows == ()
    assert (east.region, len(east.rows), east.problem) == ("us-east-1", 2, "")


def test_a_place_without_a_catalog_says_so(tmp_path: Path) -> None:
    for path, word in ((tmp_path, "holds no SkyPilot catalog"), (tmp_path / "gone", "No such file")):
        (part,) = parts(path)
        assert word in part.problem and part.rows == ()


def test_content_changes_with_what_is_said_and_not_with_when_or_where(tmp_path: Path) -> None:
    other = "p3.8xlarge,V100,4.0,32,244,,12.24,3.6,us-east-1,use1-az1"
    put(tmp_path / "a", "aws.csv", AWS, P3, other)
    put(tmp_path / "b", "aws.csv", AWS, "", other, P3)
    put(tmp_path / "c", "aws.csv", AWS, P3.replace("3.06", "3.05"), other)
    (first,) = parts(tmp_path / "a")
    (moved,) = parts(tmp_path / "b", as_of=None)
    (changed,) = parts(tmp_path / "c")
    assert first.content == moved.content != changed.content


def cell() -> st.SearchStrategy[str]:
    return st.one_of(
        st.sampled_from(
            ["", "0", "-1", "nan", "inf", "1e999", "A100", "a2-highgpu-1g", "us", "8.0", "{'Gpus': 1}", "[[["]
        ),
        st.text(alphabet=st.characters(exclude_characters=',"\r\n', exclude_categories=["Cs"]), max_size=12),
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(st.sampled_from(["aws", "gcp", "azure"]), st.lists(st.lists(cell(), min_size=10, max_size=10), max_size=8))
def test_any_cells_give_rows_or_a_problem(tmp_path: Path, cloud: str, table: list[list[str]]) -> None:
    put(tmp_path, f"{cloud}.csv", GCP, *(",".join(cells) for cells in table))
    for part in parts(tmp_path / f"{cloud}.csv"):
        assert part.problem or part.rows


def test_random_bytes_give_problems_in_bounded_time(tmp_path: Path) -> None:
    chance = random.Random(7)
    valid = f"{AWS}\n{P3}\n{P4}\n".encode() * 50
    for number in range(25):
        folder = tmp_path / str(number)
        folder.mkdir()
        spoilt = bytearray(valid)
        for _ in range(chance.choice([1, 30, 3000])):
            spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
        (folder / "aws.csv").write_bytes(bytes(spoilt))
        (folder / "gcp.csv").write_bytes(chance.randbytes(5000))
        (folder / "lambda.csv.gz").write_bytes(b"\x1f\x8b" + chance.randbytes(500))
        found = parts(folder)
        assert {part.cloud for part in found if part.problem} >= {"gcp", "lambda"}
        assert all(part.problem or part.rows for part in found)
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["a/b", "", " "])
def test_a_name_that_breaks_an_id_is_left_to_the_gate(tmp_path: Path, name: str) -> None:
    put(tmp_path, "aws.csv", AWS, P3.replace("p3.2xlarge", name))
    (part,) = parts(tmp_path)
    assert len(part.rows) == 2 and not part.problem
