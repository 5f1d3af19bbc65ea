"""What every engine refuses, and that it lives on."""

import time

import httpx
import pytest

from hexcloud.adapters.engines.client import EngineClient
from hexcloud.domain.errors import EngineError, RequestRefusedError
from hexcloud.domain.generation import FinishKind
from tests.adapters.engines.contract import LONG, Answer, Subject, ask


@pytest.fixture(autouse=True)
def _lives_on(subject: Subject) -> object:
    yield
    assert subject.client.is_ready()
    (made,) = subject.client.generate((ask("after", max_new_tokens=2),))
    assert made.finish is FinishKind.LENGTH
    deadline = time.monotonic() + 10  # SGLang takes some seconds to see that a caller has hung up
    while subject.running:
        assert time.monotonic() < deadline, "something of what was refused or given up still runs"
        time.sleep(0.1)


@pytest.mark.parametrize("prompt", [(1, 21), (1, -1), (10**12,)])
def test_ids_outside_the_vocabulary_are_never_sent(subject: Subject, prompt: tuple[int, ...]) -> None:
    """SGLang itself would die of them (0.5.23)."""
    with pytest.raises(RequestRefusedError, match="was not sent"):
        subject.client.generate((ask("good"), ask("bad", prompt)))


def test_what_exceeds_the_context_is_refused(subject: Subject) -> None:
    for request in (ask("long", max_new_tokens=62), ask("wide", (1,) * 70)):
        with pytest.raises(RequestRefusedError, match="context"):
            subject.client.generate((ask("good"), request))


def test_a_body_of_a_megabyte_is_refused(subject: Subject) -> None:
    with pytest.raises(RequestRefusedError, match="HTTP 400"):
        subject.client.generate((ask("huge", (1,) * 400_000),))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"input_ids": []},
        {"input_ids": "hello"},
        {"input_ids": [1], "sampling_params": {"top_q": 1}},
        {"input_ids": [1], "sampling_params": {"max_new_tokens": -1}},
        {"input_ids": [1], "sampling_params": {"temperature": -1.0}},
        {"input_ids": [[1], [1]], "rid": ["a", "a"]},
    ],
)
def test_malformed_requests_are_refused_in_words(subject: Subject, body: dict[str, object]) -> None:
    with pytest.raises(EngineError, match=r"HTTP 4\d\d: .{10}"):
        subject.client.line.ask("POST", "/generate", body)


@pytest.mark.parametrize("path", ["/generate", "/update_weights_from_disk", "/pause_generation"])
def test_bodies_that_are_no_json_are_refused(subject: Subject, path: str) -> None:
    response = httpx.post(subject.client.url + path, content=b'{"input_ids": [1', trust_env=False)
    assert 400 <= response.status_code < 500


def test_an_unknown_pause_mode_pauses_nothing(subject: Subject) -> None:
    with pytest.raises(EngineError, match="HTTP 400"):
        subject.client.line.tell("/pause_generation", {"mode": "sideways"})
    assert subject.client.is_ready()


def test_a_rid_in_use_is_refused(subject: Subject, flying: Answer) -> None:
    with pytest.raises(EngineError):
        subject.client.generate((ask("flying", max_new_tokens=2),))
    subject.slow_down(0)
    assert len(flying.result(timeout=30)[0].tokens) == LONG


def test_a_caller_that_gives_up_is_told_so_and_its_request_ends(subject: Subject) -> None:
    impatient = EngineClient(subject.client.url, subject.client.model, generate_timeout_s=1.0)
    subject.slow_down(0.2)
    with pytest.raises(EngineError, match="/generate"):
        impatient.generate((ask("slow", max_new_tokens=LONG),))
    impatient.close()
    subject.slow_down(0)
