"""The server's life, with a stand-in for the program itself; the real one is under contract in test_contract_*.py."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from hexcloud.adapters.engines.sglang import Device, Launch, SglangServer
from hexcloud.domain.errors import EngineError

STAND_IN = Path(__file__).with_name("stand_in_server.py")


@pytest.fixture
def launch(models: Any, tmp_path: Path) -> Callable[[str], Launch]:
    """Describe a server that behaves in a certain way."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nshift 3\nexec "{sys.executable}" "{STAND_IN}" "$@"\n')
    python.chmod(0o755)

    def make(mode: str) -> Launch:
        model = tmp_path / mode
        model.mkdir()
        for file in Path(models["paths"][1]).iterdir():
            (model / file.name).write_bytes(file.read_bytes())
        (model / "mode").write_text(mode)
        return Launch(python, model, version=4, device=Device.CPU, slots=8, seed=3, log=tmp_path / f"{mode}.log")

    return make


@pytest.fixture
def begin() -> Iterator[Callable[[Launch], SglangServer]]:
    begun: list[SglangServer] = []

    def start(launch: Launch) -> SglangServer:
        begun.append(SglangServer(launch, {**os.environ, "MARK": "ours"}))
        return begun[-1]

    yield start
    for server in begun:
        server.end()


def said(launch: Launch) -> dict[str, Any]:
    deadline = time.monotonic() + 120
    while b"\n" not in launch.log.read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    words: dict[str, Any] = json.loads(launch.log.read_text().splitlines()[0])
    return words


def living(pids: list[int]) -> list[int]:
    return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


def are_gone(pids: list[int]) -> bool:
    """A signal has been sent; on a busy machine dying takes its time."""
    deadline = time.monotonic() + 60
    while living(pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not living(pids)


def test_a_server_is_handed_out_when_it_is_ready_and_ends_with_its_children(launch: Any, begin: Any) -> None:
    described = launch("serves")
    server = begin(described)
    client = server.client()
    assert client.is_ready() and client.info().version == 4
    pids = said(described)["pids"]
    assert os.getsid(pids[0]) == server.pid != os.getsid(0)
    assert living(pids) == pids
    server.end()
    assert are_gone(pids)
    assert not client.is_healthy()
    client.close()
    server.end()  # once more does nothing


def test_one_that_hears_no_sigterm_is_killed(launch: Any, begin: Any) -> None:
    described = launch("stubborn")
    server = begin(described)
    server.client().close()
    pids = said(described)["pids"]
    server.end()
    assert are_gone(pids)


def test_one_that_ends_before_it_is_ready_is_an_error_with_its_last_words(launch: Any, begin: Any) -> None:
    described = launch("ends")
    server = begin(described)
    with pytest.raises(EngineError, match=r"(?s)ended with code 3 .*no GPU was found.*ends\.log"):
        server.client()
    server.end()
    assert are_gone(said(described)["pids"])


def test_one_that_is_never_ready_is_ended_in_time(launch: Any, begin: Any) -> None:
    described = launch("hangs")
    server = begin(described)
    pids = said(described)["pids"]
    with pytest.raises(EngineError, match="not ready within 1 s"):
        server.client(within_s=1.0)
    assert are_gone(pids)


def test_one_that_is_given_up_is_ended_at_once(launch: Any, begin: Any) -> None:
    server = begin(launch("hangs"))
    given_up = threading.Event()
    threading.Timer(0.5, given_up.set).start()
    begun_s = time.monotonic()
    with pytest.raises(EngineError):
        server.client(is_given_up=given_up.is_set)
    assert time.monotonic() - begun_s < 30
    assert are_gone([server.pid])


def test_weights_that_no_server_could_load_start_none(launch: Any, tmp_path: Path) -> None:
    described = launch("serves")
    (described.model / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(EngineError, match="cannot be read"):
        SglangServer(described, os.environ)
    assert not described.log.exists()


def test_its_environment_asks_no_hub_and_takes_the_cpus_platform(launch: Any, begin: Any) -> None:
    described = launch("serves")
    begin(described)
    seen = said(described)["env"]
    assert (seen["HF_HUB_OFFLINE"], seen["SGLANG_PLATFORM"], seen["MARK"]) == ("1", "plain_cpu", "ours")
    assert seen["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"] == "false"


def flags(argv: list[str]) -> dict[str, str]:
    return {name: value for name, value in zip(argv, [*argv[1:], ""], strict=True) if name.startswith("--")}


@pytest.mark.parametrize("device", list(Device))
def test_every_server_listens_on_loopback_only_and_knows_no_text(device: Device, tmp_path: Path) -> None:
    launch = Launch(Path("python"), tmp_path, version=7, device=device, slots=32, seed=5, log=tmp_path / "log")
    argv = launch.argv(port=31000)
    assert argv[:4] == ["python", "-I", "-m", "sglang.launch_server"]
    given = flags(argv)
    assert (given["--host"], given["--port"], given["--weight-version"]) == ("127.0.0.1", "31000", "7")
    assert (given["--max-running-requests"], given["--random-seed"]) == ("32", "5")
    assert {"--skip-tokenizer-init", "--skip-server-warmup", "--sleep-on-idle"} <= set(given)


def test_a_replica_on_gpus_takes_its_own_and_the_models_precision(tmp_path: Path) -> None:
    launch = Launch(
        *(Path("python"), tmp_path, 7, Device.CUDA, 32, 5, tmp_path / "log"),
        tp=2,
        first_gpu=4,
    )
    given = flags(launch.argv(port=1))
    assert (given["--tp-size"], given["--base-gpu-id"], given["--dtype"]) == ("2", "4", "auto")
    assert "SGLANG_PLATFORM" not in launch.environment({})


def test_a_cpu_computes_in_full_precision(tmp_path: Path) -> None:
    launch = Launch(Path("python"), tmp_path, 7, Device.CPU, 32, 5, tmp_path / "log")
    given = flags(launch.argv(port=1))
    assert (given["--device"], given["--dtype"]) == ("cpu", "float32")
    assert "--tp-size" not in given


def test_over_several_machines_each_server_knows_its_rank_and_where_they_meet(launch: Any) -> None:
    alone = replace(launch("serves"), device=Device.CUDA, tp=16, first_gpu=0)
    assert not {"--nnodes", "--node-rank", "--dist-init-addr"} & set(alone.argv(1))
    words = replace(alone, nodes=2, rank=1, rendezvous="10.0.0.1:5000").argv(1)
    flags = dict(pairwise(words))
    assert (flags["--tp-size"], flags["--nnodes"], flags["--node-rank"]) == ("16", "2", "1")
    assert flags["--dist-init-addr"] == "10.0.0.1:5000"
    on_cpu = replace(alone, device=Device.CPU, nodes=2, rendezvous="10.0.0.1:5000")
    words = on_cpu.argv(1)
    assert dict(pairwise(words))["--tp-size"] == "2", "one rank on each machine"
    assert on_cpu.environment({})["SGLANG_CPU_OMP_THREADS_BIND"].count("|") == 1
