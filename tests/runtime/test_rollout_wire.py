"""Probes never hold up weights."""

import asyncio

import pytest

from hexcloud.runtime.rollout_wire import Wire


async def log_probe(log: list[str], seconds: float) -> None:
    log.append("probe begins")
    try:
        await asyncio.sleep(seconds)
        log.append("probe ends")
    except asyncio.CancelledError:
        log.append("probe gives way")
        raise


def test_a_probe_on_an_idle_wire_runs_to_its_end() -> None:
    log: list[str] = []
    asyncio.run(Wire().probe(lambda: log_probe(log, 0.0)))
    assert log == ["probe begins", "probe ends"]


def test_a_probe_under_way_gives_way_to_weights_at_once() -> None:
    log: list[str] = []

    async def scene() -> None:
        wire = Wire()
        probing = asyncio.create_task(wire.probe(lambda: log_probe(log, 60.0)))
        await asyncio.sleep(0.01)
        async with asyncio.timeout(30.0), wire.for_weights():
            log.append("weights")
        await probing

    asyncio.run(scene())
    assert log == ["probe begins", "probe gives way", "weights"]


def test_a_probe_waits_for_the_downloads_before_it_and_for_those_that_come_meanwhile() -> None:
    log: list[str] = []

    async def download(wire: Wire, name: str, until: asyncio.Event) -> None:
        async with wire.for_weights():
            log.append(name)
            await until.wait()

    async def scene() -> None:
        wire, first_ends, second_ends = Wire(), asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(download(wire, "first", first_ends))
            await asyncio.sleep(0.01)
            tasks.create_task(wire.probe(lambda: log_probe(log, 0.0)))
            await asyncio.sleep(0)
            tasks.create_task(download(wire, "second", second_ends))
            for end in (first_ends, second_ends):
                await asyncio.sleep(0.01)
                end.set()

    asyncio.run(scene())
    assert log == ["first", "second", "probe begins", "probe ends"]


def test_an_error_of_the_probe_is_heard() -> None:
    async def broken() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(Wire().probe(broken))


def test_ending_the_errand_ends_the_probe() -> None:
    log: list[str] = []

    async def scene() -> None:
        probing = asyncio.create_task(Wire().probe(lambda: log_probe(log, 60.0)))
        await asyncio.sleep(0.01)
        probing.cancel()
        await asyncio.gather(probing, return_exceptions=True)
        await asyncio.sleep(0.01)

    asyncio.run(scene())
    assert log == ["probe begins", "probe gives way"]
