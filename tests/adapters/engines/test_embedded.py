"""The engine's HTTP shapes, refusals and end, over a real socket."""

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from hexcloud.adapters.engines.embedded import parse

LONG = {"input_ids": [1], "sampling_params": {"max_new_tokens": 60, "ignore_eos": True}}
SHORT = {"max_new_tokens": 3, "ignore_eos": True}


@pytest.fixture(scope="module")
def http(models: Any, start_engine: Any) -> Iterator[httpx.Client]:
    """An engine of 25 tokens/s that serves version 1."""
    speed = ("--max-samples-per-s", "5", "--mean-tokens-per-sample", "5")
    url = start_engine(Path(models["paths"][1]), *speed).url
    with httpx.Client(base_url=url, trust_env=False) as client:
        yield client


def running(http: httpx.Client) -> int:
    return int(http.get("/server_info").json()["internal_states"][0]["running"])


def wait_until(is_so: Callable[[], bool], within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"input_ids": []},
        {"input_ids": [[1], []]},
        {"input_ids": [1], "sampling_params": {"top_q": 1}},
        {"input_ids": [1], "sampling_params": {"max_new_tokens": 0}},
        {"input_ids": [[1], [1]], "rid": ["a"]},
        {"input_ids": [[1], [1]], "rid": ["a", "a"]},
        {"input_ids": [1], "stream": True},
        {"input_ids": [1, 21]},
        {"text": "hello"},
    ],
)
def test_malformed_requests_answer_400_and_say_why(http: httpx.Client, body: dict[str, object]) -> None:
    response = http.post("/generate", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["message"]


def test_a_single_prompt_has_the_shape_of_sglang(http: httpx.Client) -> None:
    body = {"input_ids": [1, 5], "rid": "x", "return_logprob": True, "sampling_params": SHORT}
    answer = http.post("/generate", json=body).json()
    meta = answer["meta_info"]
    assert (meta["id"], meta["prompt_tokens"], meta["completion_tokens"]) == ("x", 2, 3)
    assert meta["finish_reason"] == {"type": "length", "length": 3}
    assert [entry[1:] for entry in meta["output_token_logprobs"]] == [[token, None] for token in answer["output_ids"]]
    assert meta["weight_versions"] == [{"version": "default", "start": 0, "end": 3}]


def test_a_batch_answers_with_a_list_and_logprobs_only_when_asked(http: httpx.Client) -> None:
    body = {"input_ids": [[1, 5], [1]], "rid": "y", "sampling_params": SHORT}
    answers = http.post("/generate", json=body).json()
    assert [answer["meta_info"]["id"] for answer in answers] == ["y_0", "y_1"]
    assert not any("output_token_logprobs" in answer["meta_info"] for answer in answers)


def test_control_calls_answer_like_sglang(http: httpx.Client, models: Any, tmp_path: Path) -> None:
    failed = http.post("/update_weights_from_disk", json={"model_path": str(tmp_path)})
    assert (failed.status_code, failed.json()["success"]) == (400, False)
    done = http.post("/update_weights_from_disk", json={"model_path": models["paths"][1]})
    assert (done.status_code, done.json()["success"]) == (200, True)
    for path in ("/pause_generation", "/continue_generation"):
        assert http.post(path, json={}).json()["status"] == "ok"
    info = http.get("/model_info").json()
    assert (info["model_path"], info["weight_version"], info["is_generation"]) == (models["paths"][1], "default", True)
    bad = http.post("/pause_generation", json={"mode": "sideways"})
    assert (bad.status_code, bad.json()["object"]) == (400, "error")


def test_ready_says_no_while_paused_and_health_still_answers(http: httpx.Client) -> None:
    assert http.get("/ready").status_code == 200
    http.post("/pause_generation", json={"mode": "in_place"})
    assert http.get("/ready").status_code == 503
    assert http.get("/health").status_code == 200
    http.post("/continue_generation")
    assert http.get("/flush_cache").status_code == 200


def test_a_caller_that_hangs_up_has_its_request_aborted(http: httpx.Client) -> None:
    http.post("/slow_down", json={"forward_sleep_time": 1.0})
    try:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{http.base_url}/generate", json=LONG, timeout=httpx.Timeout(30.0, read=0.3), trust_env=False)
        wait_until(lambda: running(http) == 0, within_s=30.0)  # alone it would have gone on for a minute
    finally:
        http.post("/slow_down", json={"forward_sleep_time": None})


def test_the_cache_is_not_flushed_while_a_request_runs(http: httpx.Client) -> None:
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(http.post, "/generate", json=LONG)
        wait_until(lambda: running(http) == 1)
        assert http.get("/flush_cache").status_code == 400
        http.post("/abort_request", json={"abort_all": True})
        assert answer.result(5).json()["meta_info"]["finish_reason"]["type"] == "abort"
    assert http.get("/flush_cache").status_code == 200


def test_an_engine_without_weights_waits_for_its_first_update(models: Any, start_engine: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((Path(models["paths"][1]) / "config.json").read_text())
    with httpx.Client(base_url=start_engine(tmp_path).url, trust_env=False) as http:
        body = {"input_ids": [1], "sampling_params": SHORT}
        assert http.get("/model_info").json()["weight_version"] == "-1"
        assert http.get("/ready").status_code == 503
        assert http.post("/generate", json=body).status_code == 503
        http.post("/update_weights_from_disk", json={"model_path": models["paths"][2], "weight_version": "7"})
        assert http.get("/ready").status_code == 200
        assert http.post("/generate", json=body).json()["meta_info"]["weight_version"] == "7"


def test_an_engine_ends_with_the_process_that_started_it(models: Any, tmp_path: Path) -> None:
    port_file = tmp_path / "port.json"
    start_and_wait = (
        "import os, subprocess, sys, time; "
        "engine = subprocess.Popen([*sys.argv[1:], '--parent-pid', str(os.getpid())]); "
        "print(engine.pid, flush=True); time.sleep(600)"
    )
    engine = [sys.executable, "-m", "hexcloud.adapters.engines.embedded", "--model-path", models["paths"][1]]
    argv = [sys.executable, "-c", start_and_wait, *engine, "--port-file", str(port_file)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        deadline = time.monotonic() + 240
        while not port_file.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_alive(pid))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_the_speed_on_the_command_line_becomes_tokens_per_second() -> None:
    settings = parse(["--model-path", "m", "--max-samples-per-s", "4", "--mean-tokens-per-sample", "6.5"])
    assert settings.tokens_per_s == 26.0
    assert parse(["--model-path", "m"]).tokens_per_s is None


def test_a_speed_of_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--model-path", "m", "--max-samples-per-s", "0"])
    assert "must be positive" in capsys.readouterr().err


def test_a_path_on_stdin_is_waited_for_and_its_absence_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("weights/7\n"))
    assert parse(["--model-path", "-"]).model_path == Path("weights/7")
    with pytest.raises(SystemExit):
        parse(["--model-path", "-"])
    assert "stdin ended" in capsys.readouterr().err
