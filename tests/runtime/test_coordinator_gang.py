import pytest

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import INTERRUPTION, Notice, Rendezvous
from hexcloud.domain.plan import Role
from hexcloud.domain.training import LayoutKind, TrainingSpec
from hexcloud.domain.world import GangPlan, World
from hexcloud.runtime.coordinator_gang import TrainerGang
from hexcloud.runtime.coordinator_nodes import KnownNode

HEAD, B, C = NodeId("a"), NodeId("b"), NodeId("c")


class Machines(list[KnownNode]):
    def come(self, *names: NodeId) -> None:
        self += [KnownNode(name, Role.TRAINER, 0, "", 0.0) for name in names]

    def __call__(self, name: NodeId) -> KnownNode:
        return next(node for node in self if node.id == name)


@pytest.fixture
def machines() -> Machines:
    return Machines()


def gang_of(machines: Machines, planned: int, rollout_spec: NodeSpec) -> TrainerGang:
    return TrainerGang(rollout_spec.model_copy(update={"node_id": HEAD, "gang": planned, "ranks": 2}), machines)


def form(gang: TrainerGang, store: str = "h:1") -> World:
    assert gang.world is not None
    gang.meet(Rendezvous(generation=gang.world.generation, store=store, is_formed=True))
    return gang.world


def test_a_machine_alone_trains_at_once(machines: Machines, rollout_spec: NodeSpec) -> None:
    assert gang_of(machines, 1, rollout_spec).world == World(nodes=(HEAD,), ranks=2)


def test_a_gang_begins_when_it_is_whole_with_its_head_first(machines: Machines, rollout_spec: NodeSpec) -> None:
    gang = gang_of(machines, 3, rollout_spec)
    machines.come(B, HEAD)
    assert gang.world is None
    machines.come(C)
    assert gang.world == World(nodes=(HEAD, B, C), ranks=2)


def test_machines_that_come_and_go_change_a_living_world_one_change_at_a_time(
    machines: Machines, rollout_spec: NodeSpec
) -> None:
    gang = gang_of(machines, 1, rollout_spec)
    form(gang, "")
    machines.come(B)
    grown = gang.world
    assert grown == World(generation=1, nodes=(HEAD, B), ranks=2, before=(HEAD,))
    machines.come(C)
    assert gang.world == grown  # until that is formed
    form(gang)
    assert gang.world == World(generation=2, nodes=(HEAD, B, C), ranks=2, before=(HEAD, B), store="h:1")
    form(gang)
    machines(B).is_draining = True
    machines(C).notice = Notice(cause=INTERRUPTION, until_s=9.0)
    assert gang.world == World(generation=3, nodes=(HEAD,), ranks=2, before=(HEAD, B, C), store="h:1")
    form(gang)
    machines(B).is_silent = True  # it left, as it was told to
    assert gang.world.generation == 3


@pytest.mark.parametrize("when", ["formed", "changing"])
def test_a_machine_that_is_lost_makes_all_begin_anew(when: str, machines: Machines, rollout_spec: NodeSpec) -> None:
    gang = gang_of(machines, 2, rollout_spec)
    machines.come(B)
    form(gang)
    if when == "changing":
        machines(B).is_draining = True
        assert gang.world is not None and gang.world.before
    machines(B).is_silent = True
    world = gang.world
    assert world is not None
    assert (world.nodes, world.before, world.store) == ((HEAD,), (), "")


def test_a_machine_that_is_lost_before_it_has_joined_costs_no_step(machines: Machines, rollout_spec: NodeSpec) -> None:
    gang = gang_of(machines, 1, rollout_spec)
    form(gang, "h:1")
    machines.come(B, C)
    assert gang.world == World(generation=1, nodes=(HEAD, B, C), ranks=2, before=(HEAD,), store="h:1")
    machines(B).is_silent = True
    assert gang.world == World(generation=2, nodes=(HEAD, C), ranks=2, before=(HEAD,), store="h:1")
    assert not gang.holds(B) and gang.holds(C)
    machines(C).is_silent = True
    assert gang.world == World(generation=3, nodes=(HEAD,), ranks=2, before=(HEAD,), store="h:1")


def test_a_rank_that_died_makes_all_begin_anew_and_late_word_of_the_old_world_counts_no_more(
    machines: Machines, rollout_spec: NodeSpec
) -> None:
    gang = gang_of(machines, 2, rollout_spec)
    machines.come(B)
    form(gang)
    gang.restart()
    gang.meet(Rendezvous(generation=0, store="h:1", is_formed=True))
    assert gang.world == World(generation=1, nodes=(HEAD, B), ranks=2)


def changing(gang: TrainerGang, machines: Machines) -> World:
    """A gang of two that a third machine is about to join."""
    machines.come(B)
    form(gang)
    machines.come(C)
    assert gang.world == World(generation=1, nodes=(HEAD, B, C), ranks=2, before=(HEAD, B), store="h:1")
    return gang.world


def begin(gang: TrainerGang, world: World) -> bool:
    return gang.meet(Rendezvous(generation=world.generation, store=world.store, is_begun=True))


def test_a_machine_that_is_told_to_go_does_not_wait_for_one_that_is_slow_to_come(
    machines: Machines, rollout_spec: NodeSpec
) -> None:
    gang = gang_of(machines, 2, rollout_spec)
    late = changing(gang, machines)
    machines(B).is_draining = True
    assert gang.world == World(generation=2, nodes=(HEAD,), ranks=2, before=(HEAD, B), store="h:1")
    assert gang.holds(B) and not begin(gang, late), "rank 0 must not make a change that machines know no more"
    form(gang)
    assert not gang.holds(B)
    machines(B).is_silent = True  # ended by force or not, it held nothing
    assert gang.world == World(generation=3, nodes=(HEAD, C), ranks=2, before=(HEAD,), store="h:1")


def test_a_machine_that_is_told_to_go_before_it_has_joined_goes_at_once(
    machines: Machines, rollout_spec: NodeSpec
) -> None:
    gang = gang_of(machines, 2, rollout_spec)
    changing(gang, machines)
    machines(C).is_draining = True
    assert gang.world == World(generation=2, nodes=(HEAD, B), ranks=2, before=(HEAD, B), store="h:1")
    assert not gang.holds(C)


def test_a_change_that_has_begun_is_ended_before_the_next(machines: Machines, rollout_spec: NodeSpec) -> None:
    gang = gang_of(machines, 2, rollout_spec)
    world = changing(gang, machines)
    assert begin(gang, world)
    machines(B).is_draining = True
    assert gang.world == world and gang.holds(B)
    form(gang)
    assert gang.world == World(generation=2, nodes=(HEAD, C), ranks=2, before=(HEAD, B, C), store="h:1")


def test_who_is_lost_in_mid_change_makes_all_begin_anew(machines: Machines, rollout_spec: NodeSpec) -> None:
    gang = gang_of(machines, 2, rollout_spec)
    begin(gang, changing(gang, machines))
    machines(C).is_silent = True
    assert gang.world == World(generation=2, nodes=(HEAD, B), ranks=2)


def test_who_has_come_is_there_when_all_begin_anew(machines: Machines, rollout_spec: NodeSpec) -> None:
    """What is left may have no room for the state: then it dies again and again, and never forms."""
    gang = gang_of(machines, 2, rollout_spec)
    machines.come(B)
    form(gang)
    machines(B).is_silent = True
    assert gang.world is not None and gang.world.nodes == (HEAD,)
    machines.come(C)
    gang.restart()
    assert gang.world == World(generation=2, nodes=(HEAD, C), ranks=2)


def test_rollout_nodes_are_none_of_it(machines: Machines, rollout_spec: NodeSpec) -> None:
    gang = gang_of(machines, 1, rollout_spec)
    form(gang, "")
    machines.append(KnownNode(B, Role.ROLLOUT, 8, "", 0.0))
    assert gang.world == World(nodes=(HEAD,), ranks=2)


def test_the_head_begins_in_its_layout_and_keeps_it_while_nothing_else_is_planned(
    machines: Machines, rollout_spec: NodeSpec
) -> None:
    training = TrainingSpec(layout=LayoutKind.HSDP)
    gang = gang_of(machines, 1, rollout_spec.model_copy(update={"training": training}))
    assert form(gang).layout is LayoutKind.HSDP
    machines.come(B)
    assert form(gang) == World(
        generation=1, nodes=(HEAD, B), ranks=2, before=(HEAD,), store="h:1", layout=LayoutKind.HSDP
    )
    gang.restart()
    assert gang.world is not None and gang.world.layout is LayoutKind.HSDP


def test_a_gang_grows_in_the_layout_that_it_has_until_it_is_as_large_as_planned(
    machines: Machines, rollout_spec: NodeSpec
) -> None:
    gang = gang_of(machines, 1, rollout_spec)
    form(gang)
    gang.planned = GangPlan(machines=3, layout=LayoutKind.HSDP, pass_tokens=2048)
    machines.come(B)
    assert (form(gang).layout, form(gang).pass_tokens) == (LayoutKind.FSDP, 8192)
    machines.come(C)
    assert (form(gang).layout, form(gang).pass_tokens) == (LayoutKind.HSDP, 2048)


def test_a_gang_shrinks_in_the_layout_in_which_the_smaller_one_fits(machines: Machines, rollout_spec: NodeSpec) -> None:
    gang = gang_of(machines, 3, rollout_spec.model_copy(update={"training": TrainingSpec(layout=LayoutKind.TP)}))
    machines.come(B, C)
    form(gang)
    gang.planned = GangPlan(machines=1, layout=LayoutKind.FSDP)
    machines(C).is_draining = True
    assert form(gang).layout is LayoutKind.FSDP
    machines(B).is_draining = True
    assert form(gang).layout is LayoutKind.FSDP


def test_another_planned_layout_alone_moves_nothing(machines: Machines, rollout_spec: NodeSpec) -> None:
    gang = gang_of(machines, 2, rollout_spec)
    machines.come(B)
    world = form(gang)
    gang.planned = GangPlan(machines=2, layout=LayoutKind.HSDP)
    assert gang.world == world
    machines(B).is_draining = True
    machines.come(C)
    assert form(gang).layout is LayoutKind.FSDP, "one came for one that went"
    machines(C).is_silent = True
    assert form(gang).layout is LayoutKind.FSDP, "it is not planned for one machine"
    machines.come(NodeId("d"))
    assert form(gang).layout is LayoutKind.HSDP
