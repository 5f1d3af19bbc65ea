"""The engine contract, over real sockets to a real engine process."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from hexcloud.adapters.engines.client import EngineClient
from hexcloud.domain.errors import EngineError
from hexcloud.domain.generation import FinishKind, Generation, GenerationRequest, PauseMode
from hexcloud.ports import Engine

LONG = 60
"""Tokens; 2.4 s on the slow engine."""


def request(rid: str, prompt: tuple[int, ...] = (1, 5, 6), **fields: Any) -> GenerationRequest:
    return GenerationRequest(rid=rid, input_ids=prompt, **{"max_new_tokens": 8, "ignore_eos": True, **fields})


@pytest.fixture(scope="module")
def fast(models: Any, start_engine: Any) -> EngineClient:
    client: EngineClient = start_engine(Path(models["paths"][1]), "--max-running-requests", "32")
    return client


@pytest.fixture(scope="module")
def slow(models: Any, start_engine: Any) -> EngineClient:
    """An engine of 25 tokens/s, so that a request can be caught in flight."""
    speed = ("--max-samples-per-s", "5", "--mean-tokens-per-sample", "5")
    client: EngineClient = start_engine(Path(models["paths"][1]), *speed)
    return client


@pytest.fixture
def engine(fast: EngineClient, models: Any) -> EngineClient:
    fast.update_weights_from_disk(models["paths"][1], 1)
    return fast


@pytest.fixture
def in_flight(slow: EngineClient, models: Any) -> Iterator[tuple[EngineClient, Any]]:
    """A slow engine with one long request running, and the future of its answer."""
    slow.resume()
    slow.update_weights_from_disk(models["paths"][1], 1)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(slow.generate, (request("flying", max_new_tokens=LONG),))
        while not httpx.get(f"{slow.url}/server_info", trust_env=False).json()["internal_states"][0]["running"]:
            time.sleep(0.02)
        time.sleep(0.3)
        yield slow, future
        slow.abort_all()


def assert_true_logprobs(theirs: dict[int, Any], prompt: tuple[int, ...], made: Generation) -> None:
    for index, (token, version) in enumerate(zip(made.tokens, made.versions, strict=True)):
        with torch.no_grad():
            logits = theirs[version](input_ids=torch.tensor([[*prompt, *made.tokens[:index]]])).logits[0, -1]
        assert made.logprobs[index] == pytest.approx(float(logits.log_softmax(-1)[token]), abs=1e-4)


def test_the_client_is_an_engine(engine: EngineClient) -> None:
    port: Engine = engine
    assert port.is_healthy()


def test_a_batch_of_different_lengths_comes_back_in_order_with_true_logprobs(engine: Any, models: Any) -> None:
    prompts = [(1, *range(3, 4 + i)) for i in range(12)]
    made = engine.generate(tuple(request(f"b{i}", prompt) for i, prompt in enumerate(prompts)))
    for i, (prompt, one) in enumerate(zip(prompts, made, strict=True)):
        assert (one.rid, len(one.tokens), one.finish) == (f"b{i}", 8, FinishKind.LENGTH)
        assert set(one.versions) == {1}
        assert_true_logprobs(models["theirs"], prompt, one)


def test_a_stop_token_ends_a_generation_and_is_part_of_it(engine: Any) -> None:
    (made,) = engine.generate((request("s", ignore_eos=False, stop_token_ids=tuple(range(21))),))
    assert (made.finish, len(made.tokens), len(made.logprobs)) == (FinishKind.STOP, 1, 1)


def test_nothing_asked_is_nothing_made(engine: Any) -> None:
    assert engine.generate(()) == ()


def test_an_update_is_seen_in_info_and_in_every_later_token(engine: Any, models: Any) -> None:
    engine.update_weights_from_disk(models["paths"][2], 2)
    assert (engine.info().version, engine.info().model_path) == (2, models["paths"][2])
    (made,) = engine.generate((request("u"),))
    assert set(made.versions) == {2}
    assert_true_logprobs(models["theirs"], (1, 5, 6), made)


def test_an_update_in_flight_splits_the_versions_and_both_parts_are_true(in_flight: Any, models: Any) -> None:
    engine, future = in_flight
    engine.update_weights_from_disk(models["paths"][2], 2)
    (made,) = future.result(timeout=20)
    assert len(made.tokens) == LONG and sorted(made.versions) == list(made.versions)
    assert set(made.versions) == {1, 2}
    assert_true_logprobs(models["theirs"], (1, 5, 6), made)


def test_weights_that_cannot_be_read_change_nothing(engine: Any, models: Any, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"torn")
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(EngineError, match="cannot be read"):
            engine.update_weights_from_disk(str(path), 9)
    assert engine.info().version == 1
    (made,) = engine.generate((request("w"),))
    assert_true_logprobs(models["theirs"], (1, 5, 6), made)


def test_an_aborted_request_keeps_its_tokens(in_flight: Any, models: Any) -> None:
    engine, future = in_flight
    engine.abort(("no-such-request", "flying"))
    (made,) = future.result(timeout=5)
    assert made.finish is FinishKind.ABORT
    assert 0 < len(made.tokens) < LONG
    assert_true_logprobs(models["theirs"], (1, 5, 6), made)


def test_a_pause_in_abort_mode_ends_what_runs_and_holds_what_comes(in_flight: Any) -> None:
    engine, future = in_flight
    engine.pause(PauseMode.ABORT)
    assert future.result(timeout=5)[0].finish is FinishKind.ABORT
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(engine.generate, (request("held", max_new_tokens=2),))
        time.sleep(0.3)
        assert not held.done()
        engine.resume()
        assert held.result(timeout=5)[0].finish is FinishKind.LENGTH


@pytest.mark.parametrize("mode", [PauseMode.RETRACT, PauseMode.IN_PLACE])
def test_paused_requests_stand_still_and_then_go_on(in_flight: Any, models: Any, mode: PauseMode) -> None:
    engine, future = in_flight
    engine.pause(mode)
    time.sleep(2.6)  # longer than its tokens would have taken
    assert not future.done()
    engine.resume()
    (made,) = future.result(timeout=20)
    assert (len(made.tokens), made.finish) == (LONG, FinishKind.LENGTH)
    assert_true_logprobs(models["theirs"], (1, 5, 6), made)


@pytest.mark.parametrize("prompt", [(1, 21), (1, -1)])
def test_ids_outside_the_vocabulary_are_refused_and_harm_nothing(engine: Any, prompt: tuple[int, ...]) -> None:
    with pytest.raises(EngineError, match="HTTP 400"):
        engine.generate((request("good"), request("bad", prompt)))
    assert len(engine.generate((request("good"),))) == 1


def test_what_exceeds_the_context_is_refused(engine: Any) -> None:
    with pytest.raises(EngineError, match="context"):
        engine.generate((request("long", max_new_tokens=62),))


def test_a_rid_in_use_is_refused(in_flight: Any) -> None:
    engine, _ = in_flight
    with pytest.raises(EngineError, match="flying"):
        engine.generate((request("flying"),))


def test_the_rate_cap_holds_over_three_seconds(models: Any, start_engine: Any) -> None:
    samples_per_s, length = 40.0, 6
    speed = ("--max-samples-per-s", str(samples_per_s), "--mean-tokens-per-sample", str(length))
    engine = start_engine(Path(models["paths"][1]), *speed, "--max-running-requests", "16")
    counts, stop_at = [0] * 4, time.monotonic() + 3.5
    start = time.monotonic() + 0.5

    def work(index: int) -> None:
        number = 0
        while (now := time.monotonic()) < stop_at:
            engine.generate(tuple(request(f"{index}.{number}.{k}", max_new_tokens=length) for k in range(4)))
            number += 1
            counts[index] += 4 if now >= start else 0

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) / 3.0 == pytest.approx(samples_per_s, rel=0.15)


def test_an_engine_that_is_not_there_is_an_error_and_unhealthy() -> None:
    nobody = EngineClient("http://127.0.0.1:9")
    assert not nobody.is_healthy()
    with pytest.raises(EngineError):
        nobody.info()
    nobody.close()


@pytest.fixture
def other_server() -> Iterator[tuple[EngineClient, dict[str, Any]]]:
    """A server that answers every POST with a list of one: the given answer."""
    answer: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            content = json.dumps([answer]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        client = EngineClient(f"http://127.0.0.1:{server.server_port}")
        yield client, answer
        client.close()
        server.shutdown()


def test_a_server_without_spans_gives_its_last_version_to_every_token(other_server: Any) -> None:
    client, answer = other_server
    meta = {"finish_reason": {"type": "stop"}, "weight_version": "4", "output_token_logprobs": [[-1.0, 5, None]] * 2}
    answer |= {"output_ids": [5, 5], "meta_info": meta}
    (made,) = client.generate((request("r"),))
    assert (made.tokens, made.logprobs, made.versions) == ((5, 5), (-1.0, -1.0), (4, 4))


def test_a_request_aborted_in_the_queue_has_nothing(other_server: Any) -> None:
    client, answer = other_server
    answer |= {"output_ids": [], "meta_info": {"finish_reason": {"type": "abort"}, "weight_version": "4"}}
    assert client.generate((request("r"),))[0].finish is FinishKind.ABORT


def test_an_answer_that_makes_no_sense_is_an_engine_error(other_server: Any) -> None:
    client, answer = other_server
    answer |= {"output_ids": [5], "meta_info": {}}
    with pytest.raises(EngineError, match="not understood"):
        client.generate((request("r"),))
