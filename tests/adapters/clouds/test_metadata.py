import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from hexcloud.adapters.clouds.metadata import Metadata, open_metadata
from hexcloud.domain.errors import ConfigError, ProvisionError
from hexcloud.domain.messages import INTERRUPTION, REBALANCE, Notice
from tests.clouds.metadata_server import MetadataServer, metadata_server

NOW_S = 1_790_000_000.0


@pytest.fixture
def server() -> Iterator[MetadataServer]:
    with metadata_server() as server:
        yield server


def ask(server: MetadataServer, cloud: str, call: Callable[[Metadata], Awaitable[object]]) -> object:
    environment = {
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{server.host}",
        "GCE_METADATA_HOST": server.host,
        "HTTP_PROXY": "http://127.0.0.1:1",
    }

    async def scene() -> object:
        metadata = open_metadata(cloud, environment, lambda: NOW_S)
        try:
            return await call(metadata)
        finally:
            await metadata.close()

    return asyncio.run(scene())


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_a_machine_that_stays_hears_nothing(server: MetadataServer, cloud: str) -> None:
    assert ask(server, cloud, lambda metadata: metadata.notice()) is None


def test_aws_names_the_end_to_the_second(server: MetadataServer) -> None:
    server.interrupt_aws("2026-09-21T14:15:22Z")
    notice = ask(server, "aws", lambda metadata: metadata.notice())
    assert notice == Notice(cause=INTERRUPTION, until_s=1_790_000_122.0, detail="terminate")


def test_an_aws_notice_that_cannot_be_read_is_one_all_the_same(server: MetadataServer) -> None:
    server.aws["spot/instance-action"] = "<html>"
    notice = ask(server, "aws", lambda metadata: metadata.notice())
    assert notice == Notice(cause=INTERRUPTION, until_s=NOW_S + 120.0)


def test_aws_recommends_to_move_before_it_interrupts(server: MetadataServer) -> None:
    server.aws["events/recommendations/rebalance"] = '{"noticeTime": "2026-09-21T14:13:20Z"}'
    assert ask(server, "aws", lambda metadata: metadata.notice()) == Notice(cause=REBALANCE, until_s=NOW_S)
    server.interrupt_aws("2026-09-21T14:15:22Z")
    notice = ask(server, "aws", lambda metadata: metadata.notice())
    assert isinstance(notice, Notice) and notice.cause == INTERRUPTION


def test_an_aws_session_that_ended_is_begun_anew(server: MetadataServer) -> None:
    async def twice(metadata: Metadata) -> tuple[object, object]:
        first = await metadata.public_address()
        server.tokens.clear()
        return first, await metadata.public_address()

    server.aws["public-ipv4"] = "203.0.113.7\n"
    assert ask(server, "aws", twice) == ("203.0.113.7", "203.0.113.7")


def test_a_preempted_machine_of_google_has_half_a_minute(server: MetadataServer) -> None:
    server.gcp["preempted"] = "TRUE"
    notice = ask(server, "gcp", lambda metadata: metadata.notice())
    assert notice == Notice(cause=INTERRUPTION, until_s=NOW_S + 30.0, detail="preempted")


def test_maintenance_counts_when_it_ends_the_machine(server: MetadataServer) -> None:
    server.gcp["maintenance-event"] = "MIGRATE_ON_HOST_MAINTENANCE"
    assert ask(server, "gcp", lambda metadata: metadata.notice()) is None
    server.gcp["maintenance-event"] = "TERMINATE_ON_HOST_MAINTENANCE"
    notice = ask(server, "gcp", lambda metadata: metadata.notice())
    assert isinstance(notice, Notice) and notice.until_s == NOW_S + 60.0


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_a_machine_without_a_public_address_says_so(server: MetadataServer, cloud: str) -> None:
    assert ask(server, cloud, lambda metadata: metadata.public_address()) == ""


def test_googles_external_address_is_the_public_one(server: MetadataServer) -> None:
    server.gcp["network-interfaces/0/access-configs/0/external-ip"] = "203.0.113.8"
    assert ask(server, "gcp", lambda metadata: metadata.public_address()) == "203.0.113.8"


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
@pytest.mark.parametrize("status", [500, 503, 302])
def test_trouble_is_no_notice(server: MetadataServer, cloud: str, status: int) -> None:
    server.status = status
    with pytest.raises(ProvisionError, match=f"status {status}"):
        ask(server, cloud, lambda metadata: metadata.notice())


def test_somebody_else_at_googles_address_is_not_believed(server: MetadataServer) -> None:
    server.flavor = "Other"
    server.gcp["preempted"] = "TRUE"
    with pytest.raises(ProvisionError, match="somebody else"):
        ask(server, "gcp", lambda metadata: metadata.notice())


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_silence_is_an_error(cloud: str) -> None:
    nowhere = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1", "GCE_METADATA_HOST": "127.0.0.1:1"}

    async def scene() -> None:
        metadata = open_metadata(cloud, nowhere)
        try:
            await metadata.notice()
        finally:
            await metadata.close()

    with pytest.raises(ProvisionError, match="does not answer"):
        asyncio.run(scene())


def test_a_cloud_without_metadata_is_refused() -> None:
    with pytest.raises(ConfigError, match="allowed: aws, gcp"):
        open_metadata("azure", {})
