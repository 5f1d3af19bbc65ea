"""Does the decoupled loss learn from stale samples as well as from fresh ones, and what happens without a correction?

The default task at its recommended settings, from one warm start per seed. One process plays the run with the
product's own parts: the embedded engine's scheduler samples with the weights of exactly eta versions ago (a queue is
kinder: most of its samples are younger), and TrainingStep trains on them. Bars, on the accuracy at temperature 1 after
the last step: decoupled at eta 2 within max(0.05, 2 standard errors) of eta 0; at eta 8, where the mean staleness must
be at least 4, decoupled at least 0.1 above the loss that takes stale samples as on-policy. Naive PPO (ratio and trust
region around the policy that sampled) is printed beside them, whatever it shows. A PNG of the curves is written.
"""

import copy
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
from transformers import Qwen2ForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hexcloud.adapters.engines.embedded_model import Model
from hexcloud.adapters.engines.embedded_scheduler import Scheduler
from hexcloud.adapters.engines.embedded_weights import Weights, read_config, read_weights
from hexcloud.domain.generation import GenerationRequest
from hexcloud.domain.lease import GroupId, LeaseId
from hexcloud.domain.sample import Group, Sample
from hexcloud.runtime.loss import LossSettings
from hexcloud.runtime.rewards import reward
from hexcloud.runtime.tasks import EOS_ID, SORT_DIGITS
from hexcloud.runtime.trainer_model import accuracy, build_model, config_of
from hexcloud.runtime.trainer_step import StepSettings, TrainingStep, make_optimizer
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
    Arm("decoupled", 8),
    Arm("naive", 2),
    Arm("naive", 8),
    Arm("uncorrected", 8),
)


@dataclass(frozen=True)
class Size:
    seeds: int
    steps: int
    every: int
    """Steps between two evaluations."""
    problems: int
    """Of one evaluation."""


@dataclass(frozen=True)
class Curve:
    accuracy: tuple[float, ...]
    """Before the first step, then at every evaluation."""
    staleness: float
    """Mean age of the oldest token of a sample when it is trained."""
    train_s: float
    """CPU seconds of all training steps."""


class Fleet:
    """A rollout fleet whose samples are exactly `eta` versions old."""

    def __init__(self, folder: Path, eta: int, seed: int) -> None:
        config = read_config(folder)
        rows = PROMPTS * GROUP
        self._scheduler = Scheduler(Model(config, rows), rows, seed)
        self._config = config
        self._history: deque[tuple[int, Weights]] = deque(maxlen=eta + 1)
        self._rng = random.Random(f"prompts/{seed}")

    def load(self, folder: Path, version: int) -> None:
        self._history.append((version, read_weights(folder, self._config)))
        oldest, weights = self._history[0]
        self._scheduler.replace_weights(weights, str(oldest), flush_cache=True)

    def groups(self, step: int) -> tuple[Group, ...]:
        prompts = [TASK.prompt(self._rng) for _ in range(PROMPTS)]
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


def train(warm: Qwen2ForCausalLM, arm: Arm, seed: int, size: Size) -> Curve:
    """Train a copy of the warm policy."""
    model = copy.deepcopy(warm)
    settings = StepSettings(loss=LossSettings(kind=arm.loss))
    step = TrainingStep(model, make_optimizer(model, settings), settings)
    ages: list[int] = []
    train_s = 0.0
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
            step.run(groups, version, random.Random(f"{seed}/{version}"))
            train_s += time.process_time() - begun_s
            place = Path(folder) / str(version + 1)
            write_weights(place, model.state_dict(), config_of(model))
            fleet.load(place, version + 1)
            if (version + 1) % size.every == 0:
                curve.append(score(model, size))
    return Curve(tuple(curve), statistics.mean(ages), train_s)


def score(model: Qwen2ForCausalLM, size: Size) -> float:
    return accuracy(model, TASK, size.problems, EVALUATION_SEED)


def run(size: Size) -> dict[Arm, list[Curve]]:
    curves: dict[Arm, list[Curve]] = {arm: [] for arm in ARMS}
    for seed in range(size.seeds):
        warm = build_model(TASK, seed)
        warm_start(warm, TASK, seed, WarmupSettings())
        for arm in ARMS:
            curves[arm].append(train(warm, arm, seed, size))
            print(
                seed,
                arm.name,
                [round(x, 3) for x in curves[arm][-1].accuracy],
                round(curves[arm][-1].staleness, 2),
                round(curves[arm][-1].train_s, 1),
                round(time.process_time()),
                flush=True,
            )
    return curves


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    torch.set_num_threads(1)
    run(Size(3, 150, 15, 512))
