"""The main job on two real SGLang servers on this machine's CPU, which take weights while requests are in flight."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from hexcloud.adapters.engines.sglang_home import SGLANG_PYTHON, find_sglang
from hexcloud.domain.errors import ConfigError
from hexcloud.runtime.weights import write_weights
from tests.runtime.words import make_word_folder

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(2400)]

ETA, STEPS = 4, 20
RUN = f"""
name: on-sglang
engine: sglang
target: 5k        # two rollout machines, one GPU each
batch: 256
group: 8
eta: {ETA}
steps: {STEPS}
trace: null
"""
LONG_RUN = (
    RUN.replace("256", "32")
    + """
task: {name: "jsonl:problems.jsonl", reward: "python:verify.py", max_new_tokens: 160}
weights: model
"""
)
"""A hundred tokens a response: servers on a CPU make fewer than the trainer takes, so they are at work when weights
arrive. And were they faster, weights, which call for new work, would still arrive before that work is done."""
VERIFY = "def verify(response, answer): return min(1.0, len(response.split()) / 20)"
VOCABULARY = 256
"""About as many tokens come before a random model's end: half of the responses are cut, and rewards differ."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    try:
        find_sglang(os.environ).require_cpu()
    except ConfigError as error:
        pytest.skip(str(error))
    yield tmp_path
    for process in processes(tmp_path):
        process.kill()


def processes(home: Path) -> list[psutil.Process]:
    """Every living process that works below a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and str(home) in process.cwd():
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def test_twenty_steps_on_two_servers_stay_within_eta_and_leave_nothing(home: Path) -> None:
    ends = train(home, RUN)
    assert sum(end["generations"] for end in ends) >= STEPS * 256


def test_requests_that_run_when_weights_arrive_go_on_under_both_versions(home: Path) -> None:
    write_long_task(home)
    ends = train(home, LONG_RUN)
    assert sum(end["generations"] for end in ends) >= STEPS * 32
    assert sum(end["of_several_versions"] for end in ends) > 0


def train(home: Path, run: str) -> list[dict[str, Any]]:
    """Train to the end, see that nothing failed and nothing is left, and return each rollout node's last word."""
    (home / "run.yaml").write_text(run)
    done = subprocess.run(
        [sys.executable, "-m", "hexcloud.cli", "up", "run.yaml", "--yes", "--json"],
        env={**os.environ, "HEXCLOUD_HOME": str(home), "OMP_NUM_THREADS": "1"},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["steps"] == STEPS
    assert report["max_staleness"] <= report["eta"] == ETA
    assert report["nodes_left"] == 0
    assert (Path(report["output"]) / "model.safetensors").exists()
    assert processes(home) == []
    served = [
        events for events in map(events_of, (home / "runs" / report["run"] / "nodes").glob("*rollout*")) if events
    ]
    assert sum("sglang_ready" in names(events) for events in served) >= 2
    assert sum(event["event"] == "weights_loaded" for events in served for event in events) > 2, "updates came"
    assert not any({"generation_failed", "engine_call_failed", "weights_load_failed"} & names(one) for one in served)
    return [event for events in served for event in events if event["event"] == "sglang_ended"]


def write_long_task(folder: Path) -> None:
    """Write problems, a verifier and a random model that talks long."""
    problems = [{"prompt": f"add {one} {other}", "answer": ""} for one in range(10) for other in range(10)]
    (folder / "problems.jsonl").write_text("\n".join(map(json.dumps, problems)))
    (folder / "verify.py").write_text(VERIFY)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        bos_token_id=0,
        eos_token_id=1,
    )
    model = LlamaForCausalLM(config)
    described = config.to_dict() | {"architectures": [type(model).__name__]}
    words = make_word_folder(folder / "words")
    tokenizer = {path.name: path.read_text() for path in words.glob("tokenizer*")}
    write_weights(folder / "model", model.state_dict(), described, tokenizer)


def events_of(node: Path) -> list[dict[str, Any]]:
    """What a node said; one that could not be admitted in time, on a machine that others hold, never had an engine."""
    events = [json.loads(line) for line in (node / "node.log").read_text().splitlines() if line.startswith("{")]
    return events if any(event["event"] == "engine_start" for event in events) else []


def names(events: list[dict[str, Any]]) -> set[str]:
    return {event["event"] for event in events}


def test_a_run_on_sglang_without_sglang_is_refused_before_anything_is_rented(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(RUN)
    env = {**os.environ, "HEXCLOUD_HOME": str(tmp_path / "home"), SGLANG_PYTHON: str(tmp_path / "nowhere")}
    done = subprocess.run(
        [sys.executable, "-m", "hexcloud.cli", "up", str(tmp_path / "run.yaml"), "--yes"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "make sglang" in done.stderr
    assert not (tmp_path / "home" / "runs").exists()
