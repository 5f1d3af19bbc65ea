"""A crew that changes its size while it trains, with real processes: a, b; then a; then a and others."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
import torch

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.fleet import NodeId, RunId
from hexcloud.domain.metrics import StepNumbers
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.training import PASS_TOKENS, LayoutKind, TrainingSpec
from hexcloud.domain.world import World
from hexcloud.runtime import trainer_patience, trainer_ranks
from hexcloud.runtime.checkpoint import Counters
from hexcloud.runtime.checkpoint_index import newest_checkpoint
from hexcloud.runtime.trainer_crew import Beginning, Crew, Seat
from hexcloud.runtime.trainer_meeting import Meeting
from hexcloud.runtime.trainer_model import config_of
from hexcloud.runtime.trainer_resize import whole_of
from tests.runtime.training import PROCESSES, groups_of, right_and_wrong, small_model

A, B, C, D = (NodeId(name) for name in "abcd")
START = Counters(epoch=0, version=0, trained_samples=0, accuracy_before=0.0)


@dataclass(frozen=True)
class Story:
    """Three worlds, one after another; the head is in all of them."""

    name: str
    ranks: int
    """On each machine."""
    nodes: tuple[tuple[NodeId, ...], tuple[NodeId, ...], tuple[NodeId, ...]]
    layouts: tuple[LayoutKind, LayoutKind, LayoutKind]

    @property
    def worlds(self) -> tuple[World, World, World]:
        first, second, third = (
            World(
                generation=number,
                nodes=nodes,
                before=self.nodes[number - 1] if number else (),
                ranks=self.ranks,
                layout=self.layouts[number],
                pass_tokens=128 if number == 1 else PASS_TOKENS,
            )
            for number, nodes in enumerate(self.nodes)
        )
        return first, second, third

    def members(self) -> Iterator[tuple[NodeId, int, World]]:
        """All processes but rank 0: machine, place on it, and the world into which they come."""
        for world in self.worlds:
            for node in world.nodes:
                if node not in world.before:
                    for place in range(node == A, self.ranks):
                        yield node, place, world


def kept(layout: LayoutKind, ranks: int, last: tuple[NodeId, ...]) -> Story:
    """A machine leaves, then others join, all in one layout."""
    return Story(layout.value, ranks, ((A, B), (A,), last), (layout, layout, layout))


def changed(layout: LayoutKind) -> Story:
    """A machine joins, and all take another layout; it leaves, and they take theirs again."""
    return Story(f"fsdp-{layout}-fsdp", 2, ((A,), (A, B), (A,)), (LayoutKind.FSDP, layout, LayoutKind.FSDP))


FLAT = kept(LayoutKind.FSDP, 1, (A, C, D))
QUICK = (FLAT, changed(LayoutKind.HSDP))
OTHERS = (kept(LayoutKind.HSDP, 2, (A, C)), kept(LayoutKind.TP, 2, (A, C)), changed(LayoutKind.TP))


def seat(folder: Path, node: NodeId, place: int = 0) -> Seat:
    spec = NodeSpec(
        run_id=RunId("r"),
        node_id=node,
        slot=SlotName("trainer"),
        role=Role.TRAINER,
        task="sort_digits",
        seed=0,
        slots=0,
        samples_per_step=32,
        group_size=8,
        eta=2,
        steps=10,
        run_dir=str(folder),
        output="",
        tokens_per_sample=16,
        training=TrainingSpec(ramp_steps=1, kl_weight=0.01),
    )
    return Seat(spec, place)


def train(crew: Crew, version: int) -> StepNumbers:
    groups = groups_of(small_model(4), right_and_wrong(6)[version:], drift=0.2)
    return crew.train(groups, START.model_copy(update={"version": version}))


def begin(crew: Crew) -> None:
    model = small_model()
    whole = dict(whole_of(model)) | dict(whole_of(model, "reference."))
    crew.begin(lambda: Beginning(config_of(model), whole))


def alone(folder: Path) -> tuple[list[StepNumbers], torch.Tensor]:
    """The same without a change of size."""
    crew = Crew(seat(folder, A), World(nodes=(A,)), Meeting("127.0.0.1"))
    begin(crew)
    numbers = [train(crew, version) for version in range(4)]
    return numbers, weights(crew)


def weights(crew: Crew) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in crew.gather().parameters()])


def lead(folder: Path, story: Story) -> None:
    torch.set_num_threads(1)
    first, second, third = story.worlds
    crew = Crew(seat(folder, A), first, Meeting("127.0.0.1"))
    (folder / "address.draft").write_text(crew.listen())
    (folder / "address.draft").rename(folder / "address")
    begin(crew)
    numbers = [train(crew, 0)]
    for version, world in enumerate((second, third), 1):
        while not crew.is_ready(world):
            crew.wait()
            time.sleep(0.01)
        crew.resize(world)
        numbers.append(train(crew, version))
    crew.save(START.model_copy(update={"version": 3}))
    numbers.append(train(crew, 3))
    torch.save(weights(crew), folder / "weights")
    (folder / "numbers").write_text(json.dumps([one.model_dump() for one in numbers]))
    crew.end()


def member(folder: Path, node: NodeId, place: int, world: World) -> None:
    torch.set_num_threads(1)
    address = folder / "address"
    while not address.exists():
        time.sleep(0.01)
    Crew(
        seat(folder, node, place), world.model_copy(update={"store": address.read_text()}), Meeting("127.0.0.1")
    ).follow()


def start(act: Callable[..., None], *arguments: object) -> ForkServerProcess:
    process = PROCESSES.Process(target=act, args=arguments)
    process.start()
    return process


@pytest.mark.parametrize(
    "story", [*QUICK, *(pytest.param(one, marks=pytest.mark.slow) for one in OTHERS)], ids=lambda story: story.name
)
def test_ranks_that_leave_and_join_change_nothing_of_what_is_learnt(story: Story, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    wanted, wanted_weights = alone(tmp_path / "alone")
    crew = [start(lead, tmp_path, story), *(start(member, tmp_path, *one) for one in story.members())]
    for process in crew:
        process.join(120)
    assert [process.exitcode for process in crew] == [0] * len(crew)
    found = [StepNumbers.model_validate(row) for row in json.loads((tmp_path / "numbers").read_text())]
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.model_dump() == pytest.approx(theirs.model_dump(), rel=1e-4, abs=1e-6)
    moved = torch.load(tmp_path / "weights")
    assert float((moved - wanted_weights).norm() / wanted_weights.norm()) < 1e-4

    # What several ranks have saved goes on with one, as exactly.
    info = newest_checkpoint(tmp_path)
    assert info is not None and info.version == 3
    one = Crew(seat(tmp_path, A), World(nodes=(A,)), Meeting("127.0.0.1"))
    assert one.begin(lambda: Beginning(config_of(small_model()), info)) == START.model_copy(update={"version": 3})
    assert train(one, 3).model_dump() == pytest.approx(wanted[3].model_dump(), rel=1e-4, abs=1e-6)


def test_another_order_of_the_same_batch_is_told_apart_by_the_numbers_that_are_compared(tmp_path: Path) -> None:
    """Which samples meet in a minibatch follows from epoch and version alone, so a change of size keeps it."""
    found = []
    for epoch in (0, 0, 1):
        crew = Crew(seat(tmp_path, A), World(nodes=(A,)), Meeting("127.0.0.1"))
        begin(crew)
        groups = groups_of(small_model(4), right_and_wrong(6), drift=0.2)
        found.append(crew.train(groups, START.model_copy(update={"epoch": epoch})).model_dump())
    assert found[0] == found[1]
    assert found[0] != pytest.approx(found[2], rel=1e-4, abs=1e-6)


HASTE = timedelta(seconds=15)
"""A timeout of groups that would be over before a slow beginning is."""


def hurry() -> None:
    trainer_ranks.TIMEOUT, trainer_patience.MEET_S = HASTE, 0.5


def begin_slowly(folder: Path) -> None:
    """Be rank 0 and take longer to read the model than a rank waits for another."""
    hurry()
    crew = Crew(seat(folder, A), FLAT.worlds[0], Meeting("127.0.0.1"))
    (folder / "address.draft").write_text(crew.listen())
    (folder / "address.draft").rename(folder / "address")
    model = small_model()
    whole = dict(whole_of(model)) | dict(whole_of(model, "reference."))

    def read() -> Beginning:
        time.sleep(1.5 * HASTE.total_seconds())
        return Beginning(config_of(model), whole)

    crew.begin(read)
    assert train(crew, 0).grad_norm > 0
    crew.end()


def follow_in_haste(folder: Path, node: NodeId, place: int, world: World) -> None:
    hurry()
    member(folder, node, place, world)


@pytest.mark.slow
def test_ranks_wait_for_a_beginning_that_takes_longer_than_their_timeout(tmp_path: Path) -> None:
    crew = [start(begin_slowly, tmp_path), start(follow_in_haste, tmp_path, B, 0, FLAT.worlds[0])]
    for process in crew:
        process.join(120)
    assert [process.exitcode for process in crew] == [0, 0]


def die_in_a_step(folder: Path, node: NodeId, place: int, world: World) -> None:
    """Go down at the first backward pass, as a machine does."""
    torch.Tensor.backward = lambda *_args, **_kwargs: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
    member(folder, node, place, world)


def test_all_ranks_end_when_one_is_killed_in_a_step(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    crew = [start(lead, tmp_path, FLAT), start(die_in_a_step, tmp_path, B, 0, FLAT.worlds[0])]
    for process in crew:
        process.join(60)
    leader, victim = (process.exitcode for process in crew)
    assert victim == -signal.SIGKILL
    assert leader not in {0, None}
