"""Crew: what the trainer does as one, on any number of ranks. Rank 0 calls, the others follow and do the same.

An order goes out to all ranks before each common act, also while there is nothing to do: a rank that hears nothing for
long ends. A change of size is such an act: the ranks there were and will be meet in a group of their own, move the
state, and form the new world (trainer_resize.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from random import Random

import torch
from transformers import PreTrainedModel

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.formation import Formation
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.metrics import StepNumbers
from hexcloud.domain.sample import Group
from hexcloud.domain.training import LayoutKind
from hexcloud.domain.world import World
from hexcloud.runtime.checkpoint import Counters, load_checkpoint, save_checkpoint
from hexcloud.runtime.checkpoint_index import CheckpointInfo
from hexcloud.runtime.reshard import describe
from hexcloud.runtime.reshard_layout import TensorSpec
from hexcloud.runtime.trainer_meeting import Meeting
from hexcloud.runtime.trainer_patience import nothing, together
from hexcloud.runtime.trainer_policy import Form
from hexcloud.runtime.trainer_ranks import Ranks, join, leave
from hexcloud.runtime.trainer_resize import Change, Side, carry_out, spread, take
from hexcloud.runtime.trainer_state import TrainingState, WholeModel
from hexcloud.runtime.trainer_step import Moment, TrainingStep


class _Act(StrEnum):
    WAIT = "wait"
    TRAIN = "train"
    GATHER = "gather"
    SAVE = "save"
    RESIZE = "resize"
    END = "end"


class _Order(Frozen):
    """What all ranks do next."""

    act: _Act
    counters: Counters | None = None
    groups: tuple[Group, ...] = ()
    world: World | None = None


class _Opening(Frozen):
    """How a world begins: what is trained, and from which checkpoint, if any."""

    config: dict[str, object]
    epoch: int = 0
    version: int = 0
    checkpoint: str = ""


@dataclass(frozen=True)
class Beginning:
    """With what rank 0 begins."""

    config: dict[str, object]
    """Of the model."""
    start: CheckpointInfo | Mapping[str, torch.Tensor]
    """Where the state is, or its tensors."""


class _Passing(Frozen):
    """What those who join a world need to know of the one before."""

    layout: LayoutKind
    config: dict[str, object]
    tensors: dict[str, TensorSpec]
    updates: int


@dataclass(frozen=True)
class Seat:
    """Who a process is among the trainer's."""

    spec: NodeSpec
    """Of its machine."""
    place: int
    """Among the machine's processes."""

    def rank(self, world: World) -> int:
        """Return its rank in a world."""
        return world.nodes.index(self.spec.node_id) * world.ranks + self.place


class Crew:
    """One rank of the trainer."""

    def __init__(self, seat: Seat, world: World, meeting: Meeting) -> None:
        """Belong to a world that is yet to be formed, by `begin` or, on other ranks than 0, by `follow`."""
        self.world = world
        self._seat = seat
        self._meeting = meeting
        self._ranks: Ranks
        self._state: TrainingState
        self._step: TrainingStep
        self._whole: WholeModel

    @property
    def parameters(self) -> int:
        """Weights of the policy."""
        return sum(weight.numel() for weight in self._state.policy.model.parameters())

    @property
    def address(self) -> str:
        """Where rank 0 is met, `host:port`; empty while nobody needs to."""
        return self._meeting.address

    # What rank 0 says.

    def listen(self) -> str:
        """Let others meet rank 0 here; return where. May be repeated."""
        return self._meeting.listen()

    def begin(self, prepare: Callable[[], Beginning]) -> Counters | None:
        """Form the world and bring everybody the state: of a checkpoint, whose counters are returned, or some tensors.

        Waits for the others, who then wait for `prepare`, however long it takes. Raises what that raises, EngineError
        for a torn checkpoint, torch's errors when somebody does not come.
        """
        self._ranks = self._join()
        beginning = together(self._ranks, prepare)
        config, start = beginning.config, beginning.start
        if isinstance(start, CheckpointInfo):
            opening = _Opening(config=config, epoch=start.epoch, version=start.version, checkpoint=str(start.path))
            return self._begin(opening, None)
        return self._begin(_Opening(config=config), start)

    def wait(self) -> None:
        """Let everybody know that there is nothing to do yet."""
        self._tell(_Order(act=_Act.WAIT))

    def train(self, groups: tuple[Group, ...], counters: Counters) -> StepNumbers:
        """Train on a batch; counters are those before it."""
        return self._train(self._tell(_Order(act=_Act.TRAIN, groups=groups, counters=counters)))

    def gather(self) -> PreTrainedModel:
        """Return the policy whole. It is only to be read, until the next act."""
        self._tell(_Order(act=_Act.GATHER))
        return self._whole.of(self._state)

    def save(self, counters: Counters) -> CheckpointInfo:
        """Write a checkpoint."""
        return self._save(self._tell(_Order(act=_Act.SAVE, counters=counters)))

    def resize(self, world: World) -> None:
        """Become another world, without a step lost. Those who join must be ready."""
        self._resize(self._tell(_Order(act=_Act.RESIZE, world=world)))

    def end(self) -> None:
        """Let everybody go."""
        self._tell(_Order(act=_Act.END))
        leave()

    def is_ready(self, world: World) -> bool:
        """Do all who would join the world wait for it?"""
        joining = range(len(world.before) * world.ranks, len(world.union) * world.ranks)
        return self._meeting.are_ready(world.generation, joining)

    # What the others do.

    def follow(self) -> None:
        """Do what rank 0 does until it ends, or this machine leaves. Raises torch's errors when a rank is lost."""
        self._meeting.reach(self.world.store)
        if self.world.before:
            self._meeting.be_ready(self.world.generation, self._union_rank(self.world))
            self._move(self.world, {}, None)
        else:
            self._ranks = self._join()
            together(self._ranks, nothing)
            self._begin(None, None)
        while (order := self._hear()).act is not _Act.END:
            if order.act is _Act.TRAIN:
                self._train(order)
            elif order.act is _Act.GATHER:
                self._whole.of(self._state)
            elif order.act is _Act.SAVE:
                self._save(order)
            elif order.act is _Act.RESIZE and not self._resize(order):
                return
        leave()

    # What everybody does.

    def _begin(self, opening: _Opening | None, whole: Mapping[str, torch.Tensor] | None) -> Counters | None:
        said = self._ranks.tell(opening.model_dump_json().encode() if opening else None)
        opening = _Opening.model_validate_json(said)
        self._build(opening.config)
        if not opening.checkpoint:
            spread(self._state, self._ranks, whole)
            return None
        info = CheckpointInfo(opening.epoch, opening.version, Path(opening.checkpoint))
        return load_checkpoint(info, self._state, self._ranks)

    def _train(self, order: _Order) -> StepNumbers:
        counters, spec = order.counters, self._seat.spec
        assert counters is not None
        # The order of samples follows from where the run stands, so a resumed run needs no stored state for it.
        rng = Random(f"{spec.seed}/{counters.epoch}/{counters.version}")
        return self._step.run(order.groups, Moment(counters.version, spec.steps), rng)

    def _save(self, order: _Order) -> CheckpointInfo:
        assert order.counters is not None
        return save_checkpoint(Path(self._seat.spec.run_dir), order.counters, self._state, self._ranks)

    def _resize(self, order: _Order) -> bool:
        """Return whether this machine is of the new world."""
        assert order.world is not None
        state = self._state
        passing = _Passing(
            layout=self.world.layout,
            config=state.form.config,
            tensors=describe(state.tensors()),
            updates=state.updates,
        )
        parts = state.buffers()
        del state, self._state, self._step, self._whole
        leave()
        return self._move(order.world, parts, passing)

    def _move(self, world: World, parts: Mapping[str, torch.Tensor], passing: _Passing | None) -> bool:
        """Make the change to a world together with all of both."""
        rank, settings = self._union_rank(world), self._seat.spec.training
        everybody = Formation(LayoutKind.FSDP, len(world.union), world.ranks)
        ranks = join(self._meeting.store(f"change/{world.generation}"), rank, everybody, settings)
        said = ranks.tell(passing.model_dump_json().encode() if rank == 0 and passing else None)
        passing = _Passing.model_validate_json(said)
        got = carry_out(_change(world, passing), rank, parts, ranks.device)
        leave()
        if self._seat.spec.node_id not in world.nodes:
            return False
        self.world = world
        self._ranks = self._join()
        self._build(passing.config)
        take(self._state, got)
        self._state.updates = passing.updates
        return True

    def _join(self) -> Ranks:
        world, settings = self.world, self._seat.spec.training
        formation = Formation(world.layout, len(world.nodes), world.ranks)
        return join(self._meeting.store(f"world/{world.generation}"), self._seat.rank(world), formation, settings)

    def _build(self, config: dict[str, object]) -> None:
        ranks = self._ranks
        settings = self.world.settings(self._seat.spec.training)
        self._state = TrainingState(Form(config, settings, ranks.device), ranks.mesh)
        self._step = TrainingStep(self._state, ranks, settings)
        self._whole = WholeModel(is_wanted=ranks.rank == 0)

    def _union_rank(self, world: World) -> int:
        return world.union.index(self._seat.spec.node_id) * world.ranks + self._seat.place

    def _tell(self, order: _Order) -> _Order:
        if self._ranks.size > 1:
            self._ranks.tell(order.model_dump_json().encode())
        return order

    def _hear(self) -> _Order:
        return _Order.model_validate_json(self._ranks.tell(None))


def _change(world: World, passing: _Passing) -> Change:
    union = world.union

    def side(nodes: tuple[str, ...], layout: LayoutKind) -> Side:
        places = tuple(union.index(node) * world.ranks + place for node in nodes for place in range(world.ranks))
        return Side(Formation(layout, len(nodes), world.ranks), places)

    machines = tuple(rank // world.ranks for rank in range(len(union) * world.ranks))
    before, after = side(world.before, passing.layout), side(world.nodes, world.layout)
    return Change(passing.tensors, before, after, machines)
