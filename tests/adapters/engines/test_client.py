"""The client against engines that are capped, gone, old or odd; what every engine does is in test_contract_*.py."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hexcloud.adapters.engines.client import EngineClient
from hexcloud.adapters.engines.model_folder import ModelFacts
from hexcloud.domain.errors import EngineError, RequestRefusedError
from tests.adapters.engines.contract import ask
from tests.adapters.engines.odd_server import OddServer, odd_server

FACTS = ModelFacts(vocab=21)


@pytest.fixture
def odd() -> Iterator[OddServer]:
    with odd_server() as server:
        yield server


@pytest.fixture
def client(odd: OddServer) -> Iterator[EngineClient]:
    client = EngineClient(odd.url, FACTS)
    yield client
    client.close()


def test_the_rate_cap_holds_over_three_seconds(models: Any, start_engine: Any) -> None:
    samples_per_s, length = 40.0, 6
    speed = ("--max-samples-per-s", str(samples_per_s), "--mean-tokens-per-sample", str(length))
    engine = start_engine(Path(models["paths"][1]), *speed, "--max-running-requests", "16")
    counts, stop_at = [0] * 4, time.monotonic() + 3.5
    start = time.monotonic() + 0.5

    def work(index: int) -> None:
        number = 0
        while (now := time.monotonic()) < stop_at:
            engine.generate(tuple(ask(f"{index}.{number}.{k}", max_new_tokens=length) for k in range(4)))
            number += 1
            counts[index] += 4 if now >= start else 0

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) / 3.0 == pytest.approx(samples_per_s, rel=0.15)


def test_an_engine_that_is_not_there_is_an_error_unhealthy_and_not_ready() -> None:
    nobody = EngineClient("http://127.0.0.1:9", FACTS)
    assert not nobody.is_healthy() and not nobody.is_ready()
    with pytest.raises(EngineError):
        nobody.info()
    nobody.close()


def test_a_closed_client_is_an_error_too(client: EngineClient) -> None:
    client.close()
    assert not client.is_healthy()
    with pytest.raises(EngineError):
        client.generate((ask("r"),))


def test_an_engine_that_does_not_know_ready_is_ready_when_it_is_healthy(odd: OddServer, client: EngineClient) -> None:
    assert not client.is_ready()
    odd.answers["/health"] = 200, {}
    assert client.is_ready()
    odd.answers["/ready"] = 503, {}
    assert not client.is_ready()


@pytest.mark.parametrize("status", [200, 400, 500])
def test_an_update_that_fails_leaves_the_engine_paused(odd: OddServer, client: EngineClient, status: int) -> None:
    """It may have failed midway: what it would make then is of no version."""
    odd.answers |= {path: (200, {"status": "ok"}) for path in ("/pause_generation", "/continue_generation")}
    odd.answers["/update_weights_from_disk"] = status, {"success": False, "message": "failed midway"}
    with pytest.raises(EngineError, match="failed midway"):
        client.update_weights_from_disk("weights", 3)
    assert odd.paths == ["/pause_generation", "/update_weights_from_disk"]


@pytest.mark.parametrize(("status", "is_requests_fault"), [(400, True), (413, True), (200, False), (500, False)])
def test_a_bad_request_is_told_apart_from_a_bad_engine(
    odd: OddServer, client: EngineClient, status: int, is_requests_fault: bool
) -> None:
    odd.answers["/generate"] = status, {"error": {"message": "too long"}}
    with pytest.raises(EngineError, match="too long") as refused:
        client.generate((ask("r"),))
    assert isinstance(refused.value, RequestRefusedError) == is_requests_fault


def test_an_engine_that_hangs_is_given_up_within_its_deadline(odd: OddServer) -> None:
    odd.answers["/generate"] = 200, [{"output_ids": [5] * 1000}]
    odd.drip_s = 0.2
    impatient = EngineClient(odd.url, FACTS, generate_timeout_s=1.0)
    begun_s = time.monotonic()
    with pytest.raises(EngineError, match="within 1 s"):
        impatient.generate((ask("r"),))
    assert time.monotonic() - begun_s < 30.0
    impatient.close()


@pytest.mark.parametrize("answer", [{"error": {"message": "out of memory"}}, {"object": "error", "message": "no"}])
def test_an_error_that_is_told_with_200_is_an_error(odd: OddServer, client: EngineClient, answer: Any) -> None:
    odd.answers["/generate"] = 200, answer
    with pytest.raises(EngineError, match=r"out of memory|no"):
        client.generate((ask("r"),))
