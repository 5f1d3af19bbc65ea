"""What tests of the trainer share: batches to train on, and a trainer of any number of real processes."""

import multiprocessing
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch.distributed import FileStore  # type: ignore[attr-defined]
from torch.multiprocessing.spawn import start_processes
from transformers import PreTrainedModel

from hexcloud.domain.formation import Formation
from hexcloud.domain.lease import GroupId, LeaseId
from hexcloud.domain.sample import Group, Sample
from hexcloud.domain.training import LayoutKind, TrainingSpec
from hexcloud.runtime.tasks import SORT_DIGITS
from hexcloud.runtime.trainer_model import build_model, config_of, pad, token_logprobs
from hexcloud.runtime.trainer_policy import Form
from hexcloud.runtime.trainer_ranks import Ranks, join, leave
from hexcloud.runtime.trainer_resize import spread, whole_of
from hexcloud.runtime.trainer_state import TrainingState

PROCESSES = multiprocessing.get_context("forkserver")
"""Whoever has computed with torch must not be forked; this one has only imported it, which takes seconds."""
PROCESSES.set_forkserver_preload(["tests.runtime.training"])
Draw = tuple[tuple[int, ...], tuple[int, ...], float]
"""Prompt, response, reward."""
Story = Callable[[Ranks], None]
ALONE = Formation(LayoutKind.FSDP, 1, 1)


def right_and_wrong(count: int) -> list[list[Draw]]:
    rng = random.Random(1)
    draws: list[list[Draw]] = []
    for _ in range(count):
        prompt, right = SORT_DIGITS.demonstration(rng)
        wrong = tuple(rng.sample(right, len(right)))
        draws.append([(prompt, right, 1.0), (prompt, wrong, 0.0)] * 4)
    return draws


def groups_of(
    model: PreTrainedModel, draws: list[list[Draw]], drift: float = 0.0, version: int = 0
) -> tuple[Group, ...]:
    """Make groups whose behaviour logprobs are the model's own, or off by a given drift, now up and now down."""
    groups = []
    for number, members in enumerate(draws):
        with torch.no_grad():
            logprobs = token_logprobs(model, pad([prompt + response for prompt, response, _ in members]))
        samples = []
        for index, (prompt, response, earned) in enumerate(members):
            own = logprobs[index, len(prompt) - 1 : len(prompt) - 1 + len(response)].tolist()
            samples.append(
                Sample(
                    lease=LeaseId(f"{number}.{index}"),
                    attempt=0,
                    group=GroupId(number),
                    index=index,
                    epoch=0,
                    prompt_ids=prompt,
                    tokens=response,
                    logprobs=tuple(value + drift * (-1) ** place for place, value in enumerate(own)),
                    versions=(version,) * len(response),
                    reward=earned,
                )
            )
        groups.append(Group(id=GroupId(number), samples=tuple(samples)))
    return tuple(groups)


def state_of(model: PreTrainedModel, settings: TrainingSpec, ranks: Ranks | None = None) -> TrainingState:
    """Return a state whose policy, and reference if there is one, is the model."""
    ranks = ranks or Ranks(0, ALONE)
    state = TrainingState(Form(config_of(model), settings), ranks.mesh)
    whole = dict(whole_of(model)) | dict(whole_of(model, "reference."))
    spread(state, ranks, whole if ranks.rank == 0 else None)
    return state


def small_model(seed: int = 3) -> PreTrainedModel:
    return build_model(SORT_DIGITS, seed)


def act(story: Story, formation: Formation, settings: TrainingSpec, folder: Path) -> None:
    """Let real processes play a story, which must be picklable, as ranks of one group; raises what a rank raises."""
    store = tempfile.mktemp(dir=folder, prefix="meeting-")
    arguments = (story, formation, settings, store)
    start_processes(_rank, args=arguments, nprocs=formation.size, start_method="forkserver")  # type: ignore[no-untyped-call]


def _rank(rank: int, story: Story, formation: Formation, settings: TrainingSpec, store: str) -> None:
    torch.set_num_threads(1)
    meeting = FileStore(store, formation.size) if formation.size > 1 else None
    story(join(meeting, rank, formation, settings))
    leave()
