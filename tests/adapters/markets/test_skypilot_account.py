"""Quotas from the maps beside the prices, else from the bundle; networks from the bundle, else the usual one."""

from pathlib import Path

import pytest

from hexcloud.adapters.markets.skypilot_account import USUAL_NETWORK_GB_PER_S, Account, Draw, Sizes

MAP = "OnDemandInstanceCode,SpotInstanceCode"


def test_the_bundle_knows_networks_and_quota_codes(tmp_path: Path) -> None:
    account = Account(tmp_path)
    assert account.network_gb_per_s("gcp", "a3-highgpu-8g") == 125
    assert account.network_gb_per_s("gcp", "a9-nothing") == USUAL_NETWORK_GB_PER_S
    p5 = Sizes("p5.48xlarge", "H100", 8, 192)
    assert account.draw("aws", "us-east-2", "on_demand", p5) == Draw("aws/us-east-2/L-417A185B", 192)
    l4 = Sizes("g2-standard-8", "L4", 1, 8)
    assert account.draw("gcp", "us-west1", "spot", l4) == Draw(
        "gcp/us-west1/PREEMPTIBLE_NVIDIA_L4_GPUS", 1, "gcp/global/GPUS_ALL_REGIONS"
    )
    unknown = account.draw("gcp", "us-west1", "spot", Sizes("x9", "X", 1, 1))
    assert unknown == Draw(over_all="gcp/global/GPUS_ALL_REGIONS"), "every GPU counts there, whatever its own limit"
    assert account.draw("aws", "us-east-2", "spot", Sizes("x9.huge", "X", 1, 1)) == Draw()
    assert account.draw("lambda", "us", "on_demand", l4) == Draw()


@pytest.mark.parametrize("name", ["aws/instance_quota_mapping.csv", "aws-instance-quota-mapping.csv"])
def test_a_map_beside_the_prices_goes_first(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(f"InstanceType,{MAP}\np5.48xlarge,L-NEW,\nnew.type,L-A,L-B\n")
    account = Account(tmp_path)
    p5, new = Sizes("p5.48xlarge", "H100", 8, 192), Sizes("new.type", "H100", 8, 4)
    assert account.draw("aws", "r", "on_demand", p5) == Draw("aws/r/L-NEW", 192)
    assert account.draw("aws", "r", "spot", p5).quota == "aws/r/L-C4BD4855"
    assert account.draw("aws", "r", "spot", new) == Draw("aws/r/L-B", 4)


def test_google_cloud_counts_gpus(tmp_path: Path) -> None:
    (tmp_path / "gcp-accelerator-quota-mapping.csv").write_text(f"Accelerator,{MAP}\nP100,NVIDIA_P100_GPUS,SPOT_P100\n")
    p100 = Sizes("n1-standard-16+2xP100", "P100", 2, 16)
    assert Account(tmp_path).draw("gcp", "r", "spot", p100) == Draw("gcp/r/SPOT_P100", 2, "gcp/global/GPUS_ALL_REGIONS")


def test_a_broken_map_is_none(tmp_path: Path) -> None:
    (tmp_path / "aws-instance-quota-mapping.csv").write_bytes(b"\xff\x00\x01" * 99)
    assert Account(tmp_path).draw("aws", "r", "spot", Sizes("p5.48xlarge", "H100", 8, 192)).quota == "aws/r/L-C4BD4855"
