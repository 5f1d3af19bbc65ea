"""Does the decoupled loss learn from stale samples as well as from fresh ones, and what happens without a correction?

The default task at its recommended settings, from one warm start per seed. One process plays the run with the
product's own parts: the embedded engine's scheduler samples with the weights of exactly eta versions ago (a queue is
kinder: most of its samples are younger), and TrainingStep trains on them. Bars, on the accuracy at temperature 1 (mean
of the last three evaluations): decoupled at eta 2 within max(0.05, 2 standard errors) of eta 0; at eta 8, where the
mean staleness must be at least 4, decoupled 0.1 above the loss that takes stale samples as on-policy. Naive PPO and
A-3PO are printed beside them, whatever they show; A-3PO's time is that of its training steps over decoupled's.

A PNG of the curves is written (`--png FILE`, default learning.png). `--smoke` trains for a few steps and checks only
that every loss moves the policy, samples are as old as they should be and accuracies within [0, 1]: too little to tell
losses apart.
"""

import argparse
import json
import logging
import math
import random
import statistics
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import structlog
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from transformers import PreTrainedModel

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hexcloud.adapters.engines.embedded_model import Model
from hexcloud.adapters.engines.embedded_scheduler import Scheduler
from hexcloud.adapters.engines.embedded_weights import Weights, read_config, read_weights
from hexcloud.domain.generation import GenerationRequest
from hexcloud.domain.lease import GroupId, LeaseId
from hexcloud.domain.sample import Group, Sample
from hexcloud.domain.training import LossKind, TrainingSpec
from hexcloud.runtime.rewards import reward
from hexcloud.runtime.tasks import EOS_ID, SORT_DIGITS
from hexcloud.runtime.trainer_model import accuracy, build_model, config_of
from hexcloud.runtime.trainer_ranks import ALONE
from hexcloud.runtime.trainer_state import state_alone
from hexcloud.runtime.trainer_step import Moment, TrainingStep
from hexcloud.runtime.trainer_warmup import WarmupSettings, warm_start
from hexcloud.runtime.weights import write_weights

TASK = SORT_DIGITS
PROMPTS, GROUP = 32, 8
NEAR, NEAR_SES, ABOVE = 0.05, 2.0, 0.1
LEAST_STALENESS = 4.0
EVALUATION_SEED = 777


@dataclass(frozen=True)
class Arm:
    """One way to train."""

    loss: str
    eta: int

    @property
    def name(self) -> str:
        return f"{self.loss} eta {self.eta}"


ARMS = (
    Arm("decoupled", 0),
    Arm("decoupled", 2),
    Arm("a3po", 2),
    Arm("decoupled", 8),
    Arm("naive", 8),
    Arm("uncorrected", 8),
)
FRESH, NEAR_FRESH, QUICK, OLD, NAIVE, BLIND = ARMS
LAST = 3
"""Evaluations that make an arm's result."""


@dataclass(frozen=True)
class Size:
    seeds: int
    steps: int
    every: int
    """Steps between two evaluations."""
    problems: int
    """Of one evaluation."""
    warmup: WarmupSettings


FULL = Size(seeds=3, steps=150, every=25, problems=512, warmup=WarmupSettings())
SMOKE = Size(
    seeds=1, steps=4, every=2, problems=64, warmup=WarmupSettings(accuracy=0.05, check_every=10, check_problems=128)
)


@dataclass(frozen=True)
class Curve:
    accuracy: tuple[float, ...]
    """Before the first step, then at every evaluation."""
    staleness: float
    """Mean age of the oldest token of a sample when it is trained."""
    train_s: float
    """CPU seconds of all training steps."""
    oldest: int
    moved: int
    """Steps with a gradient."""

    @property
    def result(self) -> float:
        return statistics.mean(self.accuracy[-LAST:])


class Fleet:
    """A rollout fleet whose samples are exactly `eta` versions old."""

    def __init__(self, folder: Path, eta: int, seed: int) -> None:
        config = read_config(folder)
        rows = PROMPTS * GROUP
        self._scheduler = Scheduler(Model(config, rows), rows, seed)
        self._config = config
        self._history: deque[tuple[int, Weights]] = deque(maxlen=eta + 1)
        self._seed = seed

    def load(self, folder: Path, version: int) -> None:
        self._history.append((version, read_weights(folder, self._config)))
        oldest, weights = self._history[0]
        self._scheduler.replace_weights(weights, str(oldest), flush_cache=True)

    def groups(self, step: int) -> tuple[Group, ...]:
        prompts = [TASK.prompt(self._seed, step * PROMPTS + number) for number in range(PROMPTS)]
        sequences = [
            [self._scheduler.submit(_request(prompt, f"{step}/{number}/{index}")) for index in range(GROUP)]
            for number, (prompt, _) in enumerate(prompts)
        ]
        while self._scheduler.has_work:
            self._scheduler.step()
        return tuple(
            Group(
                id=GroupId(number),
                samples=tuple(
                    Sample(
                        lease=LeaseId(f"{number}.{index}"),
                        attempt=0,
                        group=GroupId(number),
                        index=index,
                        epoch=0,
                        prompt_ids=prompt,
                        tokens=tuple(one.tokens),
                        logprobs=tuple(one.logprobs),
                        versions=tuple(map(int, one.versions)),
                        reward=reward(TASK, tuple(one.tokens), answer),
                    )
                    for index, one in enumerate(members)
                ),
            )
            for number, ((prompt, answer), members) in enumerate(zip(prompts, sequences, strict=True))
        )


def _request(prompt: tuple[int, ...], rid: str) -> GenerationRequest:
    return GenerationRequest(
        rid=rid, input_ids=prompt, max_new_tokens=TASK.max_new_tokens, temperature=1.0, stop_token_ids=(EOS_ID,)
    )


def train(warm: PreTrainedModel, arm: Arm, seed: int, size: Size) -> Curve:
    """Train a copy of the warm policy."""
    settings = TrainingSpec(loss=LossKind(arm.loss))
    state = state_alone(warm, settings)
    model, step = state.policy.model, TrainingStep(state, ALONE, settings)
    ages: list[int] = []
    train_s, moved = 0.0, 0
    with tempfile.TemporaryDirectory(prefix="learning-") as folder:
        place = Path(folder) / "0"
        write_weights(place, model.state_dict(), config_of(model))
        fleet = Fleet(place, arm.eta, seed)
        fleet.load(place, 0)
        curve = [score(model, size)]
        for version in range(size.steps):
            groups = fleet.groups(version)
            ages += [version - sample.oldest_version for group in groups for sample in group.samples]
            begun_s = time.process_time()
            numbers = step.run(groups, Moment(version, size.steps), random.Random(f"{seed}/{version}"))
            train_s += time.process_time() - begun_s
            moved += numbers.grad_norm > 0
            place = Path(folder) / str(version + 1)
            write_weights(place, model.state_dict(), config_of(model))
            fleet.load(place, version + 1)
            if (version + 1) % size.every == 0:
                curve.append(score(model, size))
    return Curve(tuple(curve), statistics.mean(ages), train_s, max(ages), moved)


def score(model: PreTrainedModel, size: Size) -> float:
    return accuracy(model, TASK, size.problems, EVALUATION_SEED)


def run(size: Size) -> dict[Arm, list[Curve]]:
    curves: dict[Arm, list[Curve]] = {arm: [] for arm in ARMS}
    for seed in range(size.seeds):
        warm = build_model(TASK, seed)
        warm_start(warm, TASK, seed, size.warmup)
        for arm in ARMS:
            curve = train(warm, arm, seed, size)
            curves[arm].append(curve)
            print(f"seed {seed}  {arm.name:<20} {curve.accuracy[0]:.3f} -> {curve.result:.3f}", flush=True)
    return curves


def results(curves: list[Curve]) -> list[float]:
    return [curve.result for curve in curves]


def standard_error(one: list[float], other: list[float]) -> float:
    """Of the difference of two means; 0 for one seed, of which nothing is known."""
    if len(one) < 2:
        return 0.0
    return math.sqrt((statistics.variance(one) + statistics.variance(other)) / len(one))


Bars = dict[str, dict[str, float | bool]]


def learning_bars(curves: dict[Arm, list[Curve]]) -> Bars:
    mean = {arm: statistics.mean(results(found)) for arm, found in curves.items()}
    allowed = max(NEAR, NEAR_SES * standard_error(results(curves[FRESH]), results(curves[NEAR_FRESH])))
    loss, gain = mean[FRESH] - mean[NEAR_FRESH], mean[OLD] - mean[BLIND]
    staleness = min(curve.staleness for arm in (OLD, BLIND) for curve in curves[arm])
    return {
        "loss_by_eta_2": {"value": loss, "bar": allowed, "ok": loss <= allowed},
        "staleness_at_eta_8": {"value": staleness, "bar": LEAST_STALENESS, "ok": staleness >= LEAST_STALENESS},
        "corrected_over_uncorrected_at_eta_8": {"value": gain, "bar": ABOVE, "ok": gain >= ABOVE},
    }


def shape_bars(curves: dict[Arm, list[Curve]], size: Size) -> Bars:
    """Only that everything runs as it should."""
    oldest = {arm: max(curve.oldest for curve in found) for arm, found in curves.items()}
    odd = sum(age != min(arm.eta, size.steps - 1) for arm, age in oldest.items())
    idle = sum(not one.moved for found in curves.values() for one in found)
    outside = sum(not 0 <= value <= 1 for found in curves.values() for one in found for value in one.accuracy)
    return {
        "arms_of_another_age": {"value": odd, "bar": 0, "ok": odd == 0},
        "arms_without_a_gradient": {"value": idle, "bar": 0, "ok": idle == 0},
        "accuracies_out_of_range": {"value": outside, "bar": 0, "ok": outside == 0},
    }


def draw(curves: dict[Arm, list[Curve]], size: Size, path: Path) -> None:
    figure = Figure(figsize=(9, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for arm, found in curves.items():
        steps = [size.every * number for number in range(len(found[0].accuracy))]
        rows = list(zip(*(curve.accuracy for curve in found), strict=True))
        (line,) = axes.plot(steps, [statistics.mean(row) for row in rows], label=arm.name)
        axes.fill_between(steps, list(map(min, rows)), list(map(max, rows)), color=line.get_color(), alpha=0.12)
    before = statistics.mean(curve.accuracy[0] for curve in curves[FRESH])
    axes.axhline(before, color="grey", linewidth=0.8, linestyle="--")
    axes.annotate("before RL", (0, before), xytext=(2, 3), textcoords="offset points", color="grey")
    axes.set_xlabel("training steps")
    axes.set_ylabel("accuracy at temperature 1")
    axes.set_title(f"{TASK.name}: mean and range of {size.seeds} seeds, samples exactly eta versions old", loc="left")
    axes.legend()
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, format="png", dpi=130)


def report(curves: dict[Arm, list[Curve]], bars: Bars) -> int:
    print(f"\n{'loss':<14}{'eta':>4}{'before':>9}{'after':>9}{'+- s.e.':>9}{'staleness':>11}{'train CPU s':>13}")
    rows = []
    for arm, found in curves.items():
        after, before = results(found), statistics.mean(curve.accuracy[0] for curve in found)
        error = statistics.stdev(after) / len(after) ** 0.5 if len(after) > 1 else 0.0
        row = {
            "before": before,
            "after": statistics.mean(after),
            "standard_error": error,
            "staleness": statistics.mean(curve.staleness for curve in found),
            "train_s": sum(curve.train_s for curve in found),
        }
        rows.append({"loss": arm.loss, "eta": arm.eta, **row})
        print(
            f"{arm.loss:<14}{arm.eta:>4}{row['before']:>9.3f}{row['after']:>9.3f}{error:>9.3f}"
            f"{row['staleness']:>11.2f}{row['train_s']:>13.1f}"
        )
    seconds = {arm: sum(curve.train_s for curve in found) for arm, found in curves.items()}
    ratio = seconds[QUICK] / seconds[NEAR_FRESH]
    behind = statistics.mean(results(curves[NEAR_FRESH])) - statistics.mean(results(curves[QUICK]))
    print(f"\nA-3PO at eta 2: {ratio:.2f} of decoupled's training time, accuracy {-behind:+.3f}")
    metrics = {"arms": rows, "a3po_time_ratio": ratio, "a3po_accuracy_behind": behind}
    print(json.dumps({"benchmark": "learning", "metrics": metrics, "bars": bars}))
    return 0 if all(bar["ok"] for bar in bars.values()) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a few steps of one seed: the path, not the learning")
    parser.add_argument("--png", type=Path, help="where the curves go; default learning.png, in a smoke run nowhere")
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    torch.set_num_threads(1)
    size = SMOKE if args.smoke else FULL
    curves = run(size)
    png = args.png or (None if args.smoke else Path("learning.png"))
    if png is not None:
        draw(curves, size, png)
    return report(curves, shape_bars(curves, size) if args.smoke else learning_bars(curves))


if __name__ == "__main__":
    sys.exit(main())
