"""The client of Google Cloud, over HTTP on loopback."""

from typing import Any

import pytest
from google.oauth2.credentials import Credentials

from hexcloud.adapters.clouds.gcp import GcpClient, Patience
from hexcloud.adapters.clouds.gcp_answers import MachineType, Tier
from hexcloud.domain.errors import MarketError
from tests.clouds.gcp_cloud import GcpCloud
from tests.clouds.gcp_scenario import G2, SKUS, machine

SOON = Patience(call_s=5.0, retry_s=0.2, first_wait_s=0.01)


@pytest.fixture
def client(gcp: GcpCloud) -> GcpClient:
    return GcpClient(gcp.access(), SOON)


def test_regions_come_with_the_limits_of_the_account(client: GcpClient) -> None:
    by_name = {region.name: region for region in client.regions()}
    assert set(by_name) == {"us-central1", "europe-west4"}
    assert ("NVIDIA_L4_GPUS", 8, 1) in [(line.metric, line.limit, line.usage) for line in by_name["us-central1"].quotas]
    assert [line.metric for line in client.global_quotas()] == ["GPUS_ALL_REGIONS", "NETWORKS"]


def test_zones_know_their_region(client: GcpClient) -> None:
    zones = [(zone.name, zone.region) for zone in client.zones()]
    assert ("europe-west4-a", "europe-west4") in zones and len(zones) == 3


def test_only_machines_of_the_asked_names_come(client: GcpClient, gcp: GcpCloud) -> None:
    names = {one.name for one in client.machine_types("us-central1-a", "a2-.*|n1-standard-8")}
    assert names == {"a2-highgpu-8g", "a2-ultragpu-1g", "n1-standard-8"}
    assert client.accelerator_types("us-central1-b") == {"nvidia-tesla-t4": 4}


def test_a_machine_type_keeps_its_size_gpus_and_disks(client: GcpClient) -> None:
    (ultra,) = client.machine_types("us-central1-a", "a2-ultragpu-1g")
    assert ultra == MachineType("a2-ultragpu-1g", 12, 170 * 1024, (("nvidia-a100-80gb", 1),), 1)


def test_machine_types_that_are_gone_are_left_out(client: GcpClient, gcp: GcpCloud) -> None:
    gone = machine("g2-old-1", 4, 16, "nvidia-l4", 1, deprecated={"state": "OBSOLETE"})
    ageing = machine("g2-old-2", 4, 16, "nvidia-l4", 1, deprecated={"state": "DEPRECATED"})
    gcp.change(regions={"r": {"zones": {"r-a": {"machineTypes": [gone, ageing, G2]}}}})
    assert {one.name for one in client.machine_types("r-a", "g2-.*")} == {"g2-old-2", "g2-standard-4"}


def test_the_price_list_is_read_to_its_end_and_only_for_what_runs(client: GcpClient, gcp: GcpCloud) -> None:
    skus = {sku.id: sku for sku in client.skus()}
    assert len(skus) == len(SKUS) - 1 and "EGRESS" not in skus
    assert skus["L4"].tiers == (Tier(0, 0.56004, "USD"),)
    assert (skus["SSD"].unit, skus["L4-SPOT"].usage_type) == ("GiBy.mo", "Preemptible")
    assert all("currencyCode=USD" in path for path in gcp.asked("/skus"))


def test_a_glance_at_the_price_list_takes_one_page(client: GcpClient, gcp: GcpCloud) -> None:
    assert len(client.skus(most=2)) == 2
    assert len(gcp.asked("/skus")) == 1


def test_a_list_that_leads_back_to_its_start_ends(client: GcpClient, gcp: GcpCloud) -> None:
    gcp.change(faults=[{"path": "/skus", "body": '{"nextPageToken": "0"}'}])
    with pytest.raises(MarketError, match=r"price list: .* cannot be read"):
        client.skus()
    assert len(gcp.asked("/skus")) == 2


def test_a_passing_fault_is_tried_again_and_a_lasting_one_is_not(client: GcpClient, gcp: GcpCloud) -> None:
    gcp.change(faults=[{"path": "/zones", "status": 503, "times": 1}])
    assert client.zones()
    gcp.change(faults=[{"path": "/zones", "status": 403}])
    with pytest.raises(MarketError, match=r"compute\.zones\.list"):
        client.zones()
    assert len(gcp.asked("/zones")) == 3


def test_throttling_without_an_end_is_given_up_in_time(client: GcpClient, gcp: GcpCloud) -> None:
    gcp.change(faults=[{"path": "/zones", "status": 429}])
    with pytest.raises(MarketError, match="throttled"):
        client.zones()
    assert 2 <= len(gcp.asked("/zones")) <= 20


def test_a_machine_that_is_not_there_is_unreachable(gcp: GcpCloud) -> None:
    nowhere = GcpCloud("http://127.0.0.1:9", "demo").access()
    with pytest.raises(MarketError, match="cannot be reached"):
        GcpClient(nowhere, SOON).regions()


def test_expired_credentials_say_how_to_get_new_ones(gcp: GcpCloud) -> None:
    """As after a log-in that is too long ago: the token server says that the grant is gone."""
    login: Any = Credentials
    credentials = login(None, refresh_token="old", token_uri=f"{gcp.url}/token", client_id="id", client_secret="x")
    with pytest.raises(MarketError, match=r"credentials have expired.*gcloud auth application-default login"):
        GcpClient(gcp.access(credentials), SOON).regions()
    assert gcp.asked("/token")
