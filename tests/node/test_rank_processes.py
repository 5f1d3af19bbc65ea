import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.plan import Role
from hexcloud.domain.world import World
from hexcloud.node import rank_processes
from hexcloud.node.rank_processes import INTERFACES, RankProcesses, speaking_over

HEAD = NodeId("run.trainer.0")
OTHER = NodeId("run.trainer-1.0")
LATE = NodeId("run.trainer-2.0")
CODE = """
import json, os, sys, time
world = json.loads(sys.argv[sys.argv.index("--world") + 1])
place = sys.argv[sys.argv.index("--place") + 1]
told = [name for name in os.environ if name.startswith("HEXCLOUD_") and name != "HEXCLOUD_HOME"]
open(f"rank-{world['generation']}-{place}", "w").write(f"{os.getpid()} {told}")
time.sleep(60)
"""


@pytest.fixture
def ranks(make_spec: Callable[[Role], NodeSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RankProcesses:
    monkeypatch.setenv("HEXCLOUD_NODE_TOKEN", "secret")
    monkeypatch.setenv("HEXCLOUD_RUN_SECRET", "secret")
    spec = make_spec(Role.TRAINER).model_copy(update={"node_id": OTHER})
    return RankProcesses(spec, "127.0.0.1", tmp_path, argv=(sys.executable, "-c", CODE))


async def pid_of(path: Path) -> int:
    return await asyncio.to_thread(_pid_in, path)


def _pid_in(path: Path) -> int:
    gives_up_at = time.monotonic() + 60
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < gives_up_at
        time.sleep(0.02)
    assert path.read_text().endswith("[]"), "a rank was told a secret"
    return int(path.read_text().split()[0])


def test_ranks_start_when_rank_0_can_be_met_and_once(ranks: RankProcesses, tmp_path: Path) -> None:
    async def scene() -> None:
        world = World(nodes=(HEAD, OTHER), ranks=2)
        await ranks.heed(None)
        await ranks.heed(world)
        assert not ranks.are_running
        met = world.model_copy(update={"store": "127.0.0.1:1"})
        for _ in range(2):
            await ranks.heed(met)
        pids = [await pid_of(tmp_path / f"rank-0-{place}") for place in (0, 1)]
        assert ranks.are_running
        await ranks.end()
        assert not any(map(psutil.pid_exists, pids))

    asyncio.run(scene())


def test_a_new_beginning_ends_them_and_a_live_change_does_not(ranks: RankProcesses, tmp_path: Path) -> None:
    async def scene() -> None:
        await ranks.heed(World(nodes=(HEAD, OTHER), store="h:1"))
        pid = await pid_of(tmp_path / "rank-0-0")
        await ranks.heed(World(generation=1, nodes=(HEAD,), before=(HEAD, OTHER), store="h:1"))
        assert ranks.are_running and psutil.pid_exists(pid)  # it hands on what it holds, and ends itself
        await ranks.heed(World(generation=2, nodes=(HEAD, OTHER), store="h:2"))
        assert not psutil.pid_exists(pid)
        await pid_of(tmp_path / "rank-2-0")
        await ranks.end()

    asyncio.run(scene())


def test_ranks_that_waited_to_join_are_ended_when_another_change_is_wanted(
    ranks: RankProcesses, tmp_path: Path
) -> None:
    async def scene() -> None:
        await ranks.heed(World(generation=1, nodes=(HEAD, OTHER, LATE), before=(HEAD,), store="h:1"))
        pid = await pid_of(tmp_path / "rank-1-0")
        await ranks.heed(World(generation=2, nodes=(HEAD, OTHER), before=(HEAD,), store="h:1"))
        assert not psutil.pid_exists(pid)
        os.kill(await pid_of(tmp_path / "rank-2-0"), signal.SIGKILL)
        while ranks.are_running:  # noqa: ASYNC110 - a process ends, nobody tells
            await asyncio.sleep(0.01)
        assert ranks.are_lost
        await ranks.end()
        assert not ranks.are_lost

    asyncio.run(scene())


@pytest.mark.parametrize("is_up", [True, False])
def test_a_rank_that_never_comes_up_is_lost_though_it_lives(
    is_up: bool, ranks: RankProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        world = World(generation=1, nodes=(HEAD, OTHER), before=(HEAD,), store="h:1")
        sign = tmp_path / world.sign_of_life(0)
        sign.touch()
        await ranks.heed(world)
        assert not sign.exists(), "one of an earlier life says nothing"
        if is_up:
            sign.touch()
        assert not ranks.are_lost
        monkeypatch.setattr(rank_processes, "UP_S", 0.0)
        await asyncio.sleep(0.01)
        assert ranks.are_running and ranks.are_lost is not is_up
        await ranks.end()
        assert not ranks.are_lost

    asyncio.run(scene())


def test_a_machine_that_is_not_asked_starts_nothing(ranks: RankProcesses) -> None:
    async def scene() -> None:
        await ranks.heed(World(nodes=(HEAD,), store="h:1"))
        assert not ranks.are_running
        await ranks.end()

    asyncio.run(scene())


def test_ranks_speak_over_the_network_that_has_the_address() -> None:
    assert set(speaking_over("127.0.0.1")) == set(INTERFACES)
    assert speaking_over("192.0.2.1") == {}
    assert os.environ.get(INTERFACES[0]) is None
