"""What tests of several floors share: servers that stand in for clouds, a home of its own, a market that has moved."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.clouds.gcp_cloud import GcpCloud, gcp_cloud
from tests.clouds.gcp_scenario import small_cloud

# No example has a deadline: on a busy machine any may take a second. What is drawn is the same every time, so that a
# failure is the change's; `--hypothesis-profile=anew` draws other examples.
settings.register_profile("anew", settings.get_profile("default"), deadline=None)
settings.register_profile("hexcloud", settings.get_profile("anew"), derandomize=True)
settings.load_profile("hexcloud")

ROOT = Path(__file__).resolve().parents[1]
AWS_SCENARIO: dict[str, Any] = {
    "regions": ["us-east-1", "us-west-2", "eu-west-1"],
    "types": ["p5.48xlarge", "p4d.24xlarge", "g4dn.xlarge", "g5.xlarge", "trn1.32xlarge", "m5.large"],
    "on_demand": {"*": {"p5.48xlarge": 55.04, "p4d.24xlarge": 21.96, "g4dn.xlarge": 0.526, "g5.xlarge": 1.006}},
    "quotas": {"*": {"L-34B43A08": 1152, "L-417A185B": 384, "L-7212CCBC": 96, "L-DB2E81BA": 64, "L-3819A6DF": 8}},
    "placement_scores": {"us-east-1": {"p5.48xlarge": {"use1-az6": 9}}},
    "page_size": 7,
}


class MotoServer:
    """A moto server process and the scenario that it follows."""

    def __init__(self, folder: Path) -> None:
        self._scenario = folder / "scenario.json"
        self._log = folder / "calls.jsonl"
        self.tell()
        command = [sys.executable, "-m", "tests.clouds.moto_server", "--scenario", str(self._scenario)]
        self._errors = (folder / "stderr.txt").open("w")
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=self._errors, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{json.loads(self._process.stdout.readline())['port']}"

    def tell(self, **changes: Any) -> None:
        """Follow the usual scenario with these changes from now on, and forget the calls so far."""
        self._log.write_text("")
        whole = self._scenario.with_suffix(".new")
        whole.write_text(json.dumps({**AWS_SCENARIO, "log": str(self._log), **changes}))
        os.replace(whole, self._scenario)

    def calls(self, **facts: Any) -> list[dict[str, Any]]:
        """Return the calls and launches since, those with these facts."""
        read = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [call for call in read if all(call.get(name) == value for name, value in facts.items())]

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for every test: prices and runs of the user are nobody's fixture."""
    folder = tmp_path_factory.mktemp("home") / "hexcloud"
    monkeypatch.setenv("HEXCLOUD_HOME", str(folder))
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # no machine of Google's: its library need not look for one's metadata
    return folder


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    server = MotoServer(tmp_path_factory.mktemp("moto"))
    yield server
    server.stop()


@pytest.fixture
def moto(moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MotoServer:
    """A moto server with the usual scenario, which the SDK of this process talks to with made-up keys."""
    moto_server.tell()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    settings = {
        "AWS_ENDPOINT_URL": moto_server.url,
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "made-up",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "no-config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "no-credentials"),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return moto_server


@pytest.fixture(scope="module")
def gcp_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcpCloud]:
    with gcp_cloud(small_cloud(), tmp_path_factory.mktemp("gcp")) as running:
        yield running


@pytest.fixture
def gcp(gcp_process: GcpCloud) -> GcpCloud:
    """The stand-in for Google Cloud, as small as new."""
    gcp_process.start_again(small_cloud())
    return gcp_process


@pytest.fixture
def dear_aws(tmp_path: Path) -> str:
    """A recording in which AWS has, from the beginning on, raised each price that the bundle knows by a fifth."""
    from hexcloud.adapters.markets.snapshot import SnapshotMarket

    spot = ["observed_at,instance_type,region,az_id,spot_usd_per_hour"]
    on_demand = ["observed_at,instance_type,region,on_demand_usd_per_hour"]
    for offer in SnapshotMarket(("aws",)).market(0.0).offers:
        where, usd = f"2024-02-01,{offer.instance_type},{offer.region}", 1.2 * offer.usd_per_hour
        if offer.tenure == "spot":
            spot.append(f"{where},{offer.zone or '-'},{usd}")
        else:
            on_demand.append(f"{where},{usd}")
    folder = tmp_path / "dear-aws"
    folder.mkdir()
    (folder / "spot.csv").write_text("\n".join(spot) + "\n")
    (folder / "on-demand.csv").write_text("\n".join(on_demand) + "\n")
    return str(folder)
