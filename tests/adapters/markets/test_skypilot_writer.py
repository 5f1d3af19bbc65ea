"""SkyPilot's catalog from our offers: read back it says the same, and SkyPilot itself finds our prices in it."""

import csv
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from hexcloud.adapters.markets.skypilot import OWN_EXPORT, SkyPilotMarket, is_own
from hexcloud.adapters.markets.skypilot_writer import Written, write_skypilot_catalog
from hexcloud.adapters.markets.snapshot import SnapshotMarket
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.market import Market
from hexcloud.domain.offer import Offer
from hexcloud.domain.row import Row

Exported = tuple[Path, Written]


@pytest.fixture(scope="module")
def market() -> Market:
    return SnapshotMarket().market(1_785_000_000.0)


@pytest.fixture(scope="module")
def exported(market: Market, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    folder = tmp_path_factory.mktemp("home") / ".sky" / "catalogs" / "v8"
    return folder, write_skypilot_catalog(folder, market)


def sold(market: Market, written: Written) -> list[Offer]:
    """Offers that the export promises."""
    return [offer for offer in market.offers if offer.proven and offer.id not in written.left_out]


def test_all_that_skypilot_needs_is_there(exported: Exported) -> None:
    folder, written = exported
    assert set(written.files) == {
        "aws/instance_quota_mapping.csv",
        "aws/vms.csv",
        "common/accelerators.csv",
        "common/metadata.csv",
        "gcp/accelerator_quota_mapping.csv",
        *(f"{cloud}/vms.csv" for cloud in ("gcp", "lambda", "nebius", "runpod", "verda")),
    }
    left = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert left == {*written.files, OWN_EXPORT}


def test_only_offers_without_a_known_zone_are_left_out_and_few(market: Market, exported: Exported) -> None:
    _, written = exported
    assert len(written.left_out) < 0.02 * len(market.offers)
    assert {offer_id.split("/")[2] for offer_id in written.left_out} == {"-"}


def test_read_back_it_gives_the_same_prices_and_gpus(market: Market, exported: Exported, tmp_path: Path) -> None:
    folder, written = exported
    for name in written.files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    listed: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for part in SkyPilotMarket(tmp_path).fetch():
        assert part.problem == ""
        for row in part.rows:
            assert row.missing == ""
            listed[row.cloud, row.region, row.instance_type, row.tenure].append(row)
    for offer in sold(market, written):
        rows = listed[offer.cloud, offer.region, offer.instance_type, offer.tenure.value]
        here = [row for row in rows if offer.zone in (None, row.zone)]
        assert here, offer.id
        for row in here:
            assert row.price == pytest.approx(offer.usd_per_hour, abs=2e-6), offer.id
            assert (row.gpu, row.gpu_count, row.vcpus) == (offer.gpu, offer.gpu_count, offer.vcpus), offer.id


def test_yuan_come_back_as_yuan(market: Market, tmp_path: Path) -> None:
    """An export that somebody then edits is read like any other file."""
    p5 = next(offer for offer in market.offers if offer.instance_type == "p5.48xlarge" and offer.proven)
    place = {"region": "cn-north-1", "zone": "cnn1-az1", "id": f"aws/cn-north-1/cnn1-az1/p5.48xlarge/{p5.tenure.value}"}
    yuan = p5.model_copy(update={**place, "usd_per_hour": 56.0, "usd_per_unit": 0.14, "currency": "CNY"})
    dollars = yuan.model_copy(update={"usd_per_unit": 1.0, "currency": "USD"})
    written = write_skypilot_catalog(tmp_path, market.model_copy(update={"offers": (yuan,)}))
    assert written.left_out == ()
    (tmp_path / OWN_EXPORT).unlink()
    (part,) = SkyPilotMarket(tmp_path, clouds=("aws",)).fetch()
    (row,) = part.rows
    assert row.currency == "CNY" and row.price == pytest.approx(400.0)
    nobody = write_skypilot_catalog(tmp_path, market.model_copy(update={"offers": (dollars,)}))
    assert nobody.left_out == (dollars.id,)


def test_doubtful_capacity_is_not_offered_to_skypilot(market: Market, exported: Exported) -> None:
    folder, _ = exported
    doubtful = [offer for offer in market.offers if not offer.proven and offer.cloud == "aws"]
    with (folder / "aws" / "vms.csv").open(newline="") as file:
        spot = {(line["AvailabilityZone"], line["InstanceType"]): line["SpotPrice"] for line in csv.DictReader(file)}
    assert doubtful
    assert all(not spot.get((offer.zone or "", offer.instance_type)) for offer in doubtful)


def test_our_own_export_is_no_news_until_somebody_changes_it(exported: Exported) -> None:
    folder, _ = exported
    found = list(SkyPilotMarket(folder).fetch())
    assert {part.problem.split(":")[1] for part in found} == {" written by hexcloud itself, so it says nothing new"}
    path = folder / "verda" / "vms.csv"
    assert is_own(path, folder) and not is_own(folder / "gone.csv", folder)
    before = path.read_bytes()
    path.write_bytes(before + b"\n")
    assert not is_own(path, folder)
    path.write_bytes(before)


def test_machines_without_gpus_and_other_clouds_in_the_folder_stay(market: Market, tmp_path: Path) -> None:
    header = (
        "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,SpotPrice,Region,AvailabilityZone,Arch"
    )
    (tmp_path / "aws").mkdir()
    (tmp_path / "aws" / "vms.csv").write_text(
        f"{header}\nm6i.large,,,2,8,0.1,0.04,us-east-1,use1-az1,x86_64\np9.old,H100,8,1,1,9,,us-east-1,use1-az1,\n"
    )
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "accelerators.csv").write_text("AcceleratorName,Clouds\nGaudi,['AWS']\nL4,['OCI']\n")
    write_skypilot_catalog(tmp_path, market)
    with (tmp_path / "aws" / "vms.csv").open(newline="") as file:
        types = {line["InstanceType"]: line for line in csv.DictReader(file)}
    assert types["m6i.large"]["Arch"] == "x86_64" and types["m6i.large"]["Price"] == "0.1"
    assert "p9.old" not in types and types["p5.48xlarge"]["Arch"] == ""
    accelerators = (tmp_path / "common" / "accelerators.csv").read_text()
    assert "Gaudi,['AWS']" in accelerators and accelerators.count("\nL4,") == 1


def test_writing_twice_changes_nothing(market: Market, tmp_path: Path) -> None:
    written = write_skypilot_catalog(tmp_path, market)
    first = {name: (tmp_path / name).read_bytes() for name in written.files}
    assert write_skypilot_catalog(tmp_path, market) == written
    assert {name: (tmp_path / name).read_bytes() for name in written.files} == first


def test_a_folder_that_cannot_be_written_is_an_error_and_changes_nothing(market: Market, tmp_path: Path) -> None:
    write_skypilot_catalog(tmp_path, market)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.csv")}
    (tmp_path / OWN_EXPORT).unlink()
    (tmp_path / f".{OWN_EXPORT}.{os.getpid()}").mkdir()
    with pytest.raises(ConfigError, match="cannot be written"):
        write_skypilot_catalog(tmp_path, market)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.csv") if not path.name.startswith(".")} == before


ASK_SKYPILOT = """
import json, socket, sys

def refuse(self, address):
    if self.family != socket.AF_UNIX:
        raise OSError(f"a catalog query wants to connect to {address}")

socket.socket.connect = socket.socket.connect_ex = refuse
from sky import catalog

asked = json.load(sys.stdin)
names = catalog.list_accelerators(gpus_only=True, clouds=asked["clouds"], all_regions=True)
prices = []
for cloud, region, zone, machine, accelerator, count, is_spot in asked["offers"]:
    price = catalog.get_hourly_cost(machine, is_spot, region, zone, clouds=cloud)
    if cloud == "gcp":
        price += catalog.get_accelerator_hourly_cost(accelerator, count, is_spot, region, zone, clouds=cloud)
    prices.append(price)
json.dump({"names": {name: sorted({info.cloud for info in infos}) for name, infos in names.items()},
           "prices": prices}, sys.stdout)
"""


def test_skypilot_itself_lists_our_accelerators_and_gives_our_prices(market: Market, exported: Exported) -> None:
    """SkyPilot's own code over the exported files, in a process of its own that may open no connection."""
    pytest.importorskip("sky", reason="SkyPilot is not installed here (pip install 'hexcloud[cloud]')")
    folder, written = exported
    clouds = ["aws", "gcp", "lambda", "runpod", "verda"]
    offers = [offer for offer in sold(market, written) if offer.cloud in clouds]
    asked = [offer for number, offer in enumerate(offers) if number % (10 if offer.cloud == "aws" else 3) == 0]
    said = _ask_skypilot(folder.parents[2], {"clouds": clouds, "offers": [_question(folder, one) for one in asked]})
    assert len(asked) > 300 and {offer.cloud for offer in asked} == set(clouds)
    for offer, price in zip(asked, said["prices"], strict=True):
        assert price == pytest.approx(offer.usd_per_hour, abs=2e-6), offer.id
    assert set(said["names"]) >= {"T4", "V100", "A100", "A100-80GB", "H100", "H100-SXM", "H200", "B200", "L4", "L40S"}
    assert said["names"]["H100"] == ["AWS", "GCP", "Lambda", "RunPod", "Verda"]


def _question(folder: Path, offer: Offer) -> list[object]:
    zone = offer.zone
    host = offer.instance_type.split("+")[0]
    with (folder / offer.cloud / "vms.csv").open(newline="") as file:
        lines = [line for line in csv.DictReader(file) if line["Region"] == offer.region]
    if zone is None and offer.cloud in ("aws", "gcp") and offer.tenure == "spot":
        zone = next(line["AvailabilityZone"] for line in lines if line["InstanceType"] == host and line["SpotPrice"])
    accelerator = "H100-MEGA" if "mega" in host and "a3" in host else offer.gpu.removesuffix("-40GB")
    names = {"RTX-PRO-6000": "RTXPRO6000"}
    return [
        offer.cloud,
        offer.region,
        zone,
        host,
        names.get(accelerator, accelerator),
        offer.gpu_count,
        offer.tenure == "spot",
    ]


def _ask_skypilot(home: Path, asked: dict[str, object]) -> dict[str, dict[str, list[str]]]:
    environment = {
        "HOME": str(home),
        "PATH": "/usr/bin:/bin",
        "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_GCE_CHECK": "true",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", ASK_SKYPILOT],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        env=environment,
        cwd=home,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, dict[str, list[str]]] = json.loads(done.stdout)
    return answer
