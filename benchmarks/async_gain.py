"""How much faster does a run train when it may use samples that are a few versions old?

The same task, policy and emulated speeds with eta 0, 2 and 4: the run's own processes on this machine (a trainer's head
with its trainer, rollout nodes with their engines), told to generate the samples of a step in as long as training them
takes. With eta 0 one waits for the other, so twice the speed is the most there is to gain. Bars: rate of trained tokens
at eta 2 and 4 over that at eta 0, no sample older than eta, and the share of time in which both sides work.

`--png FILE` (default async_gain.png) draws who worked when. `--smoke` runs eta 0 and 2 side by side, with fewer nodes.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import structlog
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hexcloud.adapters.coordinator import Credentials, HttpCoordinator
from hexcloud.adapters.metrics import read_steps
from hexcloud.domain.command import NODE_FILE, Emulation, NodeSpec
from hexcloud.domain.errors import EngineError
from hexcloud.domain.fleet import NodeId, RunId
from hexcloud.domain.messages import POINTER_FILE, RunPhase
from hexcloud.domain.metrics import METRICS_FILE, StepRow
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.training import TrainingSpec
from hexcloud.runtime.checkpoint import Counters, save_checkpoint
from hexcloud.runtime.coordinator_access import token_sha256
from hexcloud.runtime.tasks import SORT_DIGITS
from hexcloud.runtime.trainer_model import build_model
from hexcloud.runtime.trainer_ranks import ALONE
from hexcloud.runtime.trainer_state import state_alone
from hexcloud.runtime.trainer_warmup import WarmupSettings, warm_start

RUN, SECRET, CONTROLLER = RunId("gain"), "run-secret-word", "controller-token"
LOOK_S, WITHIN_S = 0.05, 600.0
SKIPPED = 2
"""First steps: the queue fills."""


@dataclass(frozen=True)
class Size:
    etas: tuple[int, ...]
    nodes: int
    steps: int
    samples: int
    step_s: float
    """Wall seconds to generate the samples of a step, and to train them."""
    is_warm: bool
    """Train from right answers first, so that responses have their usual lengths and steps their usual work."""
    gain_bar: float
    overlap_bar: float
    at_once: int


FULL = Size((0, 2, 4), 2, 40, 128, 1.5, True, 1.6, 0.6, 1)
SMOKE = Size((0, 2), 1, 8, 32, 0.5, False, 1.2, 0.3, 2)


@dataclass(frozen=True)
class Found:
    """What one run showed. Times are wall seconds since the epoch."""

    eta: int
    rows: tuple[StepRow, ...]
    generating: tuple[tuple[float, float], ...]
    """Spans in which some node generated."""
    overlap_share: float

    @property
    def tokens_per_s(self) -> float:
        rows = self.rows[SKIPPED:]
        return sum(row.tokens for row in rows[1:]) / (rows[-1].wall_s - rows[0].wall_s)

    @property
    def oldest(self) -> int:
        return max(age for row in self.rows for age in row.staleness)

    @property
    def training(self) -> tuple[tuple[float, float], ...]:
        return tuple((row.wall_s - row.busy_s, row.wall_s) for row in self.rows)


def specs(folder: Path, eta: int, size: Size) -> list[NodeSpec]:
    """Return the head's specification and the rollout nodes'."""
    rate = size.samples / size.step_s
    head = NodeSpec(
        run_id=RUN,
        node_id=NodeId("gain.trainer.0"),
        slot=SlotName("trainer"),
        role=Role.TRAINER,
        task=SORT_DIGITS.name,
        seed=0,
        slots=0,
        samples_per_step=size.samples,
        group_size=8,
        eta=eta,
        steps=size.steps,
        run_dir=str(folder / "run"),
        output=str(folder / "output"),
        tokens_per_sample=1.0,
        checkpoint_every=10**6,
        spend_lease_s=WITHIN_S,
        heartbeat_s=0.2,
        emulation=Emulation(clock_scale=1.0, samples_per_s=rate),
    )
    # An untrained policy does not end its answers: they are as long as they may be.
    share = 1.0 if size.is_warm else SORT_DIGITS.max_new_tokens / SORT_DIGITS.mean_response_tokens
    pace = Emulation(clock_scale=1.0, samples_per_s=rate * share / size.nodes)
    rollout = {"slot": "rollout", "role": Role.ROLLOUT, "slots": size.samples, "emulation": pace}
    return [
        head,
        *(head.model_copy(update={**rollout, "node_id": f"gain.rollout.{n}", "seed": n}) for n in range(size.nodes)),
    ]


def start(spec: NodeSpec, folder: Path) -> "subprocess.Popen[bytes]":
    home = folder / spec.node_id
    home.mkdir(parents=True)
    (home / NODE_FILE).write_text(spec.model_dump_json())
    secrets = {"HEXCLOUD_NODE_TOKEN": str(spec.node_id), "HEXCLOUD_RUN_SECRET": SECRET}
    if spec.role is Role.TRAINER:
        secrets["HEXCLOUD_CONTROLLER_TOKEN"] = CONTROLLER
    environment = os.environ | secrets | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    with (home / "log").open("wb") as log:
        command = [sys.executable, "-m", "hexcloud.node", spec.role.value]
        return subprocess.Popen(command, cwd=home, env=environment, stdout=log, stderr=log, start_new_session=True)


def run(eta: int, size: Size, begun: Path, root: Path) -> Found:
    """Play one run from the checkpoint in `begun` to its last step."""
    folder = root / f"eta-{eta}"
    shutil.copytree(begun, folder / "run")
    head, *others = specs(folder, eta, size)
    nodes = [start(head, folder)]
    line = HttpCoordinator(folder / "run" / POINTER_FILE, Credentials(run_id=RUN, secret=SECRET, token=CONTROLLER))
    try:
        admit(line, others)
        nodes += [start(spec, folder) for spec in others]
        spans, overlap = watch(line, size)
    finally:
        for node in nodes:
            node.terminate()
        for node in nodes:
            node.wait(30)
        line.close()
    rows = tuple(row for row in read_steps(folder / "run" / METRICS_FILE) if row.samples)
    return Found(eta, rows, tuple(spans), overlap)


def admit(line: HttpCoordinator, specs: list[NodeSpec]) -> None:
    ends_at_s = time.monotonic() + WITHIN_S
    for spec in specs:
        while True:
            try:
                line.admit(spec.node_id, token_sha256(str(spec.node_id)), spec.role)
                break
            except EngineError:
                if time.monotonic() > ends_at_s:
                    raise
                time.sleep(LOOK_S)


def watch(line: HttpCoordinator, size: Size) -> tuple[list[tuple[float, float]], float]:
    """Look on until the last step; return when nodes generated, and the share of time in which both sides worked."""
    ends_at_s = time.monotonic() + WITHIN_S
    spans: list[tuple[float, float]] = []
    since_s = time.time()
    while time.monotonic() < ends_at_s:
        view = line.view()
        now_s = time.time()
        if view.outstanding and any(node.running for node in view.nodes if node.role is Role.ROLLOUT):
            spans.append((since_s, now_s))
        since_s = now_s
        if view.version >= size.steps or view.phase is RunPhase.DONE:
            return spans, view.overlap_share
        time.sleep(LOOK_S)
    raise SystemExit(f"the run did not reach {size.steps} steps in {WITHIN_S:.0f} s")


def begin(folder: Path, is_warm: bool) -> Path:
    """Write the checkpoint from which every run goes on."""
    model = build_model(SORT_DIGITS, seed=0)
    if is_warm:
        warm_start(model, SORT_DIGITS, 0, WarmupSettings())
    counters = Counters(epoch=0, version=0, trained_samples=0, accuracy_before=None)
    save_checkpoint(folder, counters, state_alone(model, TrainingSpec()), ALONE)
    return folder


def draw(found: list[Found], size: Size, path: Path) -> None:
    figure = Figure(figsize=(10, 1.0 + 1.1 * len(found)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    window_s = min(12 * size.step_s, min(one.rows[-1].wall_s - one.rows[SKIPPED].wall_s for one in found))
    labels = []
    for place, one in enumerate(found):
        begun_s = one.rows[SKIPPED].wall_s
        for height, spans, color in ((0.5, one.generating, "tab:blue"), (0.0, one.training, "tab:orange")):
            bars = [(a - begun_s, b - a) for a, b in spans if 0 <= a - begun_s <= window_s]
            axes.broken_barh(bars, (-1.3 * place + height, 0.42), color=color, linewidth=0)
        labels.append(f"eta {one.eta}: {one.tokens_per_s:.0f} tok/s")
    axes.set_yticks([-1.3 * place + 0.45 for place in range(len(found))], labels=labels)
    axes.set_xlim(0, window_s)
    axes.set_xlabel("wall seconds; blue: rollout nodes generate, orange: the trainer trains")
    axes.set_title("Who works when", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, format="png", dpi=130)


def report(found: list[Found], size: Size) -> int:
    fresh = found[0]
    print(f"{size.nodes} rollout nodes; {size.samples} samples a step, {size.step_s} s to generate and to train them\n")
    print(f"{'eta':>4}{'trained tok/s':>15}{'gain':>7}{'both work':>11}{'oldest':>8}{'trainer waits':>15}")
    bars: dict[str, dict[str, float | bool]] = {}
    rows = []
    for one in found:
        gain = one.tokens_per_s / fresh.tokens_per_s
        waits = sum(row.wait_s for row in one.rows[SKIPPED:]) / sum(
            row.wait_s + row.busy_s for row in one.rows[SKIPPED:]
        )
        print(
            f"{one.eta:>4}{one.tokens_per_s:>15.0f}{gain:>7.2f}{one.overlap_share:>11.2f}{one.oldest:>8}{waits:>15.2f}"
        )
        rows.append({"eta": one.eta, "tokens_per_s": one.tokens_per_s, "gain": gain, "overlap": one.overlap_share})
        bars[f"oldest_at_eta_{one.eta}"] = {"value": one.oldest, "bar": one.eta, "ok": one.oldest <= one.eta}
        if one.eta:
            bars[f"gain_at_eta_{one.eta}"] = {"value": gain, "bar": size.gain_bar, "ok": gain >= size.gain_bar}
            shared = one.overlap_share
            bars[f"overlap_at_eta_{one.eta}"] = {
                "value": shared,
                "bar": size.overlap_bar,
                "ok": shared >= size.overlap_bar,
            }
    print(json.dumps({"benchmark": "async_gain", "metrics": {"runs": rows}, "bars": bars}))
    return 0 if all(bar["ok"] for bar in bars.values()) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="two short runs, side by side")
    parser.add_argument(
        "--png", type=Path, help="where the picture goes; default async_gain.png, of a smoke run nowhere"
    )
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    torch.set_num_threads(1)
    size = SMOKE if args.smoke else FULL
    with tempfile.TemporaryDirectory(prefix="async-gain-") as folder, ThreadPoolExecutor(size.at_once) as pool:
        begun = begin(Path(folder) / "begun", size.is_warm)
        found = list(pool.map(lambda eta: run(eta, size, begun, Path(folder)), size.etas))
    png = args.png or (None if args.smoke else Path("async_gain.png"))
    if png is not None:
        draw(found, size, png)
    return report(found, size)


if __name__ == "__main__":
    sys.exit(main())
