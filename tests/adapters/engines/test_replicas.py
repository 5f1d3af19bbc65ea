"""Several real embedded engines as one."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hexcloud.adapters.engines.client import EngineClient
from hexcloud.adapters.engines.model_folder import ModelFacts
from hexcloud.adapters.engines.replicas import Replicas
from hexcloud.domain.errors import EngineError
from hexcloud.domain.generation import FinishKind, PauseMode
from hexcloud.ports import Engine
from tests.adapters.engines.contract import ask

Pair = tuple[EngineClient, EngineClient]


@pytest.fixture(scope="module")
def pair(models: Any, start_engine: Any) -> Pair:
    one, two = (start_engine(Path(models["paths"][1])) for _ in range(2))
    return one, two


@pytest.fixture
def replicas(pair: Pair, models: Any) -> Iterator[Replicas]:
    both = Replicas(pair)
    both.update_weights_from_disk(models["paths"][1], 1)
    yield both
    slow_down(pair, None)
    both.close()


def slow_down(pair: Pair, step_s: float | None) -> None:
    for engine in pair:
        engine.line.tell("/slow_down", {"forward_sleep_time": step_s})


def running(engine: EngineClient) -> int:
    return int(engine.line.ask("GET", "/server_info")["internal_states"][0]["running"])


def until_both_run(pair: Pair, each: int) -> None:
    deadline = time.monotonic() + 20
    while [running(engine) for engine in pair] != [each, each]:
        assert time.monotonic() < deadline, [running(engine) for engine in pair]
        time.sleep(0.05)


def test_they_are_an_engine(replicas: Replicas) -> None:
    port: Engine = replicas
    assert port.is_healthy()
    assert [made.rid for made in port.generate((ask("a"), ask("b")))] == ["a", "b"]
    assert replicas.generate(()) == ()


def test_batches_spread_over_them_by_open_requests_and_an_abort_reaches_all(replicas: Replicas, pair: Pair) -> None:
    slow_down(pair, 0.4)  # alone they would go on for 20 s
    with ThreadPoolExecutor(4) as pool:
        batches = [
            pool.submit(replicas.generate, (ask(f"{i}a", max_new_tokens=50), ask(f"{i}b", max_new_tokens=50)))
            for i in range(4)
        ]
        until_both_run(pair, each=4)
        replicas.abort(("0a", "1a", "2a", "3a"))
        until_both_run(pair, each=2)
        replicas.abort_all()
        for batch in batches:
            assert all(made.finish is FinishKind.ABORT for made in batch.result(timeout=10))


def test_weights_are_replaced_in_all_of_them(replicas: Replicas, pair: Pair, models: Any) -> None:
    replicas.update_weights_from_disk(models["paths"][2], 2)
    assert [engine.info().version for engine in pair] == [2, 2]
    assert replicas.info().version == 2


def test_the_version_of_all_is_that_of_the_one_furthest_behind(replicas: Replicas, pair: Pair, models: Any) -> None:
    pair[1].update_weights_from_disk(models["paths"][2], 2)
    assert replicas.info().version == 1


def test_all_are_paused_and_go_on(replicas: Replicas, pair: Pair) -> None:
    replicas.pause(PauseMode.RETRACT)
    assert not any(engine.is_ready() for engine in pair)
    replicas.resume()
    assert all(engine.is_ready() for engine in pair)


def test_one_that_is_gone_makes_all_unhealthy(pair: Pair) -> None:
    nobody = EngineClient("http://127.0.0.1:9", ModelFacts(vocab=21))
    both = Replicas((pair[0], nobody))
    assert not both.is_healthy()
    with pytest.raises(EngineError):
        both.pause(PauseMode.RETRACT)
    pair[0].resume()
    both.close()
    nobody.close()
