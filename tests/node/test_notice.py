import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest

from hexcloud.domain.messages import INTERRUPTION, REBALANCE, Notice
from hexcloud.node.notice import watching
from tests.clouds.metadata_server import MetadataServer, metadata_server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MetadataServer]:
    with metadata_server() as server:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://{server.host}")
        monkeypatch.setenv("GCE_METADATA_HOST", server.host)
        yield server


def hear(cloud: str, story: Callable[[list[Notice]], Awaitable[None]]) -> list[Notice]:
    heard: list[Notice] = []

    async def scene() -> None:
        async with watching(cloud, heard.append, look_s=0.02), asyncio.timeout(60):
            await story(heard)

    asyncio.run(scene())
    return heard


async def until(is_reached: Callable[[], bool]) -> None:
    while not is_reached():  # noqa: ASYNC110 - there is no event for what a test waits for
        await asyncio.sleep(0.005)


def test_every_new_word_is_heard_once_and_an_interruption_is_the_last(server: MetadataServer) -> None:
    async def story(heard: list[Notice]) -> None:
        await until(lambda: len(server.asked) > 4)
        server.aws["events/recommendations/rebalance"] = '{"noticeTime": "2026-11-29T22:00:00Z"}'
        await until(lambda: len(heard) == 1)
        asked = len(server.asked)
        await until(lambda: len(server.asked) > asked + 4)
        server.interrupt_aws("2026-11-29T22:02:00Z")
        await until(lambda: len(heard) == 2)
        asked = len(server.asked)
        await asyncio.sleep(0.1)
        assert len(server.asked) == asked

    assert [notice.cause for notice in hear("aws", story)] == [REBALANCE, INTERRUPTION]


def test_a_preemption_is_heard_in_time(server: MetadataServer) -> None:
    async def story(heard: list[Notice]) -> None:
        server.gcp["preempted"] = "TRUE"
        await until(lambda: bool(heard))

    (notice,) = hear("gcp", story)
    assert 25.0 < notice.until_s - time.time() <= 30.0


def test_a_service_that_is_silent_for_a_while_is_asked_on(server: MetadataServer) -> None:
    async def story(heard: list[Notice]) -> None:
        server.status = 500
        await until(lambda: len(server.asked) > 3)
        server.status = 0
        server.interrupt_aws("2026-11-29T22:02:00Z")
        await until(lambda: bool(heard))

    assert len(hear("aws", story)) == 1


def test_nobodys_metadata_are_not_asked(server: MetadataServer) -> None:
    async def story(_heard: list[Notice]) -> None:
        await asyncio.sleep(0.05)

    assert hear("", story) == [] and server.asked == []
