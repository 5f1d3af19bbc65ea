"""A real engine and a real trainer's file are measured; a plan made afterwards counts with what was found."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from hexcloud import wiring
from hexcloud.adapters.files import load_factors
from hexcloud.domain.calibration import ModelClass, Phase
from hexcloud.domain.metrics import StepRow
from hexcloud.domain.offer import Tenure
from hexcloud.domain.run import RunSpec
from hexcloud.planner.columns import build_columns
from hexcloud.runtime.tasks import TASKS
from hexcloud.runtime.trainer_model import build_model, config_of

Cli = Callable[..., Any]
LOAD = ("--batch", "8", "--prompt-tokens", "4", "--response-tokens", "40")
SUBJECT = ("--gpu", "H100", "--model", "Qwen2.5-7B")


@pytest.fixture(scope="module")
def engine_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The embedded engine with the tiny policy of the local task."""
    folder = tmp_path_factory.mktemp("model")
    policy = build_model(TASKS["sort_digits"], seed=0)
    (folder / "config.json").write_text(json.dumps(config_of(policy)))
    save_file({n: t for n, t in policy.state_dict().items() if n != "lm_head.weight"}, folder / "model.safetensors")
    port_file = folder / "port.json"
    argv = [sys.executable, "-m", "hexcloud.adapters.engines.embedded", "--model-path", str(folder)]
    process = subprocess.Popen([*argv, "--port-file", str(port_file)])
    deadline = time.monotonic() + 240
    while not port_file.exists():
        assert process.poll() is None and time.monotonic() < deadline, "the engine does not come up"
        time.sleep(0.05)
    yield f"http://127.0.0.1:{json.loads(port_file.read_text())['port']}"
    process.terminate()
    process.wait(timeout=60)


def write_steps(path: Path, busy_s: float, steps: int = 12) -> Path:
    rows = [
        StepRow(
            epoch=0,
            version=version,
            wall_s=float(version),
            samples=256,
            dropped_samples=0,
            reward=0.5,
            loss=0.0,
            grad_norm=1.0,
            clip_fraction=0.0,
            prox_kl=0.0,
            busy_s=busy_s if version >= 2 else 100 * busy_s,
            wait_s=0.0,
            staleness={},
            tokens=256 * 2048,
        )
        for version in range(steps)
    ]
    path.write_text("".join(f"{row.model_dump_json()}\n" for row in rows))
    return path


def test_an_engine_is_measured_and_the_factor_is_kept(cli: Cli, home: Path, engine_url: str) -> None:
    said = cli("profile", engine_url, "--gpu", "l4", "--model", "tiny-sort", *LOAD, "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert [row["what"] for row in found["findings"]] == ["1 at once", "2 at once", "8 at once"]
    full = found["findings"][-1]
    assert full["measured"] > found["findings"][0]["measured"] > 0
    (kept,) = load_factors(home / "calibration.yaml")
    assert kept.key == ("L4", Phase.ROLLOUT, ModelClass.SMALL)
    assert kept.speed == pytest.approx(full["measured"] / full["estimated"], abs=1e-3)


def test_a_trainers_file_is_measured_without_its_first_steps(cli: Cli, home: Path, tmp_path: Path) -> None:
    steps = write_steps(tmp_path / "metrics.jsonl", busy_s=30.0)
    said = cli("profile", str(steps), "--gpu", "H100", "--model", "Qwen2.5-7B", "--gpus-per-node", "8")
    assert said.code == 0, said.err
    assert "10 steps" in said.out and "8.5 samples/s" in said.out
    (kept,) = load_factors(home / "calibration.yaml")
    assert (kept.gpu, kept.phase, kept.model_class) == ("H100", Phase.TRAINING, ModelClass.MEDIUM)
    assert 0.3 < kept.speed < 1.0


def test_plans_made_afterwards_count_with_it(cli: Cli, home: Path, tmp_path: Path) -> None:
    steps = write_steps(tmp_path / "metrics.jsonl", busy_s=30.0)
    own = tmp_path / "fleet.yaml"
    own.write_text("- {name: mine, gpu: H100, gpu_count: 8, network_gb_per_s: 50, count: 2}\n")
    assert _gang_rate(wiring.snapshot_input(RunSpec())) == (before := _gang_rate(wiring.fleet_input(RunSpec(), own)))
    assert cli("profile", str(steps), "--gpu", "H100", "--model", "Qwen2.5-7B").code == 0
    (kept,) = load_factors(home / "calibration.yaml")
    for given in (wiring.snapshot_input(RunSpec()), wiring.fleet_input(RunSpec(), own)):
        assert _gang_rate(given) == pytest.approx(kept.speed * before)


def _gang_rate(given: wiring.PlanInput) -> float:
    """Samples/s of one node of eight H100 that trains: the same whoever rents it, were its network the same."""
    nodes = (offer for offer in given.market.offers if (offer.gpu, offer.gpu_count) == ("H100", 8))
    offer = next(nodes).model_copy(update={"network_gb_per_s": 50.0, "stock": 1, "tenure": Tenure.ON_DEMAND})
    columns, _ = build_columns((offer,), given.market, given.workload, given.policy)
    return columns.trainer[0].samples_per_s


def test_a_trainer_is_compared_with_the_estimate_of_the_layout_that_it_ran(
    cli: Cli, home: Path, tmp_path: Path
) -> None:
    steps, speeds = write_steps(tmp_path / "metrics.jsonl", busy_s=120.0), []
    gang = ("--nodes", "2", "--network-gb-per-s", "1.25")
    for layout in ("fsdp", "hsdp"):
        said = cli("profile", str(steps), "--gpu", "H100", "--model", "Qwen2.5-7B", *gang, "--layout", layout)
        assert said.code == 0, said.err
        speeds.append(load_factors(home / "calibration.yaml")[0].speed)
    assert speeds[0] > speeds[1]
    said = cli("profile", str(steps), "--gpu", "H100", "--model", "Qwen2.5-7B", "--layout", "ddp")
    assert said.code == 2 and "say fsdp, hsdp, tp" in said.err


def test_a_second_measurement_replaces_the_first(cli: Cli, home: Path, tmp_path: Path) -> None:
    for busy_s in (30.0, 15.0):
        steps = write_steps(tmp_path / "metrics.jsonl", busy_s)
        assert cli("profile", str(steps), "--gpu", "H100", "--model", "Qwen2.5-7B").code == 0
    assert len(load_factors(home / "calibration.yaml")) == 1


def test_a_speed_that_cannot_be_is_not_believed(cli: Cli, home: Path, tmp_path: Path) -> None:
    steps = write_steps(tmp_path / "metrics.jsonl", busy_s=1e-3)
    said = cli("profile", str(steps), "--gpu", "H100", "--model", "Qwen2.5-7B")
    assert said.code == 2
    assert "is this Qwen2.5-7B on H100? nothing was written" in said.err
    assert not (home / "calibration.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere.jsonl", "--gpu", "H101", "--model", "Qwen2.5-7B"), "did you mean H100"),
        (("nowhere.jsonl", "--gpu", "H100", "--model", "Qwen2.5-7C"), "did you mean"),
        (("nowhere.jsonl", *SUBJECT), "nowhere.jsonl: no such file; give a run's metrics.jsonl, or the URL"),
        (("127.0.0.1:30000", *SUBJECT), "an engine's address starts with http://: http://127.0.0.1:30000"),
    ],
)
def test_wrong_input_is_told_with_its_mend(cli: Cli, arguments: tuple[str, ...], words: str) -> None:
    said = cli("profile", *arguments)
    assert said.code == 2
    assert words in " ".join(said.err.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: H100\nhbm_gib: 80\n", "a line is no step (Invalid JSON"),
        ('{"step": 3, "loss": 0.1}\n', "a line is no step (epoch: Field required)"),
        ("", "0 steps are too few; more than 2 are needed: let the run go on"),
    ],
)
def test_a_file_of_something_else_is_told_in_one_line(
    cli: Cli, home: Path, tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "other.jsonl"
    file.write_text(text)
    said = cli("profile", str(file), *SUBJECT)
    assert said.code == 2
    assert words in " ".join(said.err.split())
    assert "validation error" not in said.err and "Traceback" not in said.err
    assert not (home / "calibration.yaml").exists()


def test_bytes_that_are_no_text_and_a_folder_are_told(cli: Cli, tmp_path: Path) -> None:
    blob = tmp_path / "blob.jsonl"
    blob.write_bytes(bytes(range(256)))
    said = cli("profile", str(blob), *SUBJECT)
    assert said.code == 2 and "is no metrics.jsonl of a run" in " ".join(said.err.split())
    said = cli("profile", str(tmp_path), *SUBJECT)
    assert said.code == 2 and "is a folder; give the metrics.jsonl of a run" in " ".join(said.err.split())


def test_steps_without_tokens_do_not_count(cli: Cli, tmp_path: Path) -> None:
    steps = write_steps(tmp_path / "metrics.jsonl", busy_s=30.0)
    steps.write_text(steps.read_text().replace(f'"tokens":{256 * 2048}', '"tokens":0'))
    said = cli("profile", str(steps), *SUBJECT)
    assert said.code == 2 and "0 steps are too few" in said.err


def test_an_engine_that_is_not_there_is_an_error_and_not_a_speed(cli: Cli) -> None:
    said = cli("profile", "http://127.0.0.1:1", *SUBJECT)
    assert said.code == 1
    assert "no engine answers at http://127.0.0.1:1: is it up, and is this its address?" in " ".join(said.err.split())


class _Page(BaseHTTPRequestHandler):
    """A web server that is no engine: a page for every address."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>It works!</html>")

    def log_message(self, *_: object) -> None:
        """Keep the test quiet."""


def test_a_server_that_is_no_engine_is_told(cli: Cli, home: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        said = cli("profile", f"http://127.0.0.1:{server.server_port}", *SUBJECT)
        server.shutdown()
    assert said.code == 2
    assert "answers, but not as an engine does" in " ".join(said.err.split())
    assert not (home / "calibration.yaml").exists()
