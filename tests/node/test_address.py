import asyncio
from collections.abc import Iterator

import pytest

from hexcloud.node.address import Place, find_place
from tests.clouds.metadata_server import MetadataServer, metadata_server

RENTED = {"SKYPILOT_NODE_IPS": "10.0.0.5\n10.0.0.6\n", "SKYPILOT_NODE_RANK": "1"}


@pytest.fixture
def server() -> Iterator[MetadataServer]:
    with metadata_server() as server:
        yield server


def place(cloud: str = "", **environment: str) -> Place:
    return asyncio.run(find_place(cloud, environment))


def test_a_node_of_this_machine_is_for_this_machine() -> None:
    assert place() == Place("127.0.0.1", "127.0.0.1", "127.0.0.1")


def test_a_rented_node_listens_on_all_its_addresses_and_is_reached_by_skypilots() -> None:
    assert place(**RENTED) == Place("0.0.0.0", "10.0.0.6", "10.0.0.6")


def test_a_public_address_comes_first(server: MetadataServer) -> None:
    server.aws["public-ipv4"] = "203.0.113.7"
    endpoint = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{server.host}"}
    assert place("aws", **RENTED, **endpoint) == Place("0.0.0.0", "203.0.113.7", "10.0.0.6")
    assert place("", **RENTED, **endpoint).address == "10.0.0.6"


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "nonsense"])
def test_metadata_that_are_silent_leave_skypilots_address(endpoint: str) -> None:
    found = place("aws", **RENTED, AWS_EC2_METADATA_SERVICE_ENDPOINT=endpoint)
    assert found.address == "10.0.0.6"


def test_what_the_user_says_stands(server: MetadataServer) -> None:
    server.aws["public-ipv4"] = "203.0.113.7"
    endpoint = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{server.host}"}
    said = {"HEXCLOUD_NODE_HOST": "10.0.0.6", "HEXCLOUD_NODE_ADDRESS": "198.51.100.1"}
    assert place("aws", **RENTED, **endpoint, **said) == Place("10.0.0.6", "198.51.100.1", "10.0.0.6")
    assert place("aws", **RENTED, **endpoint, HEXCLOUD_NODE_ADDRESS="198.51.100.1").address == "198.51.100.1"
    assert place(HEXCLOUD_NODE_HOST="10.0.0.9") == Place("10.0.0.9", "10.0.0.9", "10.0.0.9")
