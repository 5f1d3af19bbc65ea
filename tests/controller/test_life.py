from collections.abc import Callable
from dataclasses import replace

import pytest

from hexcloud.controller.life import Patience, follow, is_head
from hexcloud.controller.memory import Ending, Memory
from hexcloud.controller.observe import Seen, observe
from hexcloud.controller.outside import Ports, Timing
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.fleet import Node, NodeId, NodeStatus
from hexcloud.domain.plan import Role
from hexcloud.domain.policy import Policy
from hexcloud.simulator.simulation import Simulation

TIMING = Timing(visible_s=15.0, register_s=600.0, silent_rollout_s=15.0, silent_trainer_s=60.0)


@pytest.fixture(scope="module")
def seen(controller_of: Callable[[Simulation], Controller], ports_of: Callable[[Simulation], Ports]) -> Seen:
    sim = Simulation(Policy(target_samples_per_s=20.0))
    controller = controller_of(sim)
    for _ in range(40):
        controller.reconcile_once()
        sim.clock.sleep(5.0)
    return observe(sim.run, ports_of(sim), Memory())


def node(seen: Seen, status: NodeStatus, role: Role = Role.ROLLOUT) -> Node:
    one = next(node for node in seen.nodes if node.role is role)
    ready_at_s = None if status in {NodeStatus.REQUESTED, NodeStatus.STARTING} else one.ready_at_s
    return one.model_copy(update={"status": status, "ready_at_s": ready_at_s})


def heard(seen: Seen) -> Patience:
    """Everybody spoke just now, and the provider said yes to every end."""
    words, yes = {node.id: seen.wall_s for node in seen.nodes}, {node.id: Ending(0.0, True) for node in seen.nodes}
    return Patience(TIMING, Memory(last_word=words, answered_at=seen.wall_s, endings=yes))


def after(seen: Seen, status: NodeStatus, is_listed: bool, role: Role = Role.ROLLOUT) -> NodeStatus:
    one = node(seen, status, role)
    listed = frozenset({one.id}) if is_listed else frozenset()
    return follow(one, replace(seen, listed=listed), heard(seen)).status


def test_an_intent_is_one_until_its_launch_has_returned(seen: Seen) -> None:
    assert after(seen, NodeStatus.REQUESTED, is_listed=True) is NodeStatus.REQUESTED
    assert after(seen, NodeStatus.REQUESTED, is_listed=False) is NodeStatus.REQUESTED


@pytest.mark.parametrize("role", [Role.ROLLOUT, Role.TRAINER])
def test_an_intent_whose_call_returned_for_its_gang_is_no_intent_any_more(seen: Seen, role: Role) -> None:
    """The controller died between the notes of two machines of one call."""
    first = node(seen, NodeStatus.STARTING, role).model_copy(update={"gang": 2})
    wide = {"id": NodeId("sim.other.1"), "rank": 1, "head": first.slot if role is Role.ROLLOUT else None}
    second = first.model_copy(update=wide | {"status": NodeStatus.REQUESTED})
    together = replace(seen, nodes=(first, second))
    assert follow(second, together, heard(seen)).status is NodeStatus.STARTING
    asked = replace(seen, nodes=(first.model_copy(update={"status": NodeStatus.REQUESTED}), second))
    assert follow(second, asked, heard(seen)).status is NodeStatus.REQUESTED
    earlier = replace(seen, nodes=(first.model_copy(update={"requested_at_s": first.requested_at_s - 1.0}), second))
    assert follow(second, earlier, heard(seen)).status is NodeStatus.REQUESTED


def test_a_node_is_ready_when_the_coordinator_knows_it(seen: Seen) -> None:
    assert after(seen, NodeStatus.STARTING, is_listed=True) is NodeStatus.READY


def test_an_end_is_believed_only_when_the_provider_no_longer_lists_it(seen: Seen) -> None:
    for status in (NodeStatus.STOPPING, NodeStatus.LOST, NodeStatus.DRAINING):
        assert after(seen, status, is_listed=True) is status
        assert after(seen, status, is_listed=False) is NodeStatus.GONE


def test_an_end_that_the_provider_refused_is_not_believed_though_the_machine_is_not_listed(seen: Seen) -> None:
    one, patience = node(seen, NodeStatus.STOPPING), heard(seen)
    patience.memory.endings[one.id].is_heard = False  # its launch may still be on the way
    assert follow(one, replace(seen, listed=frozenset()), patience).status is NodeStatus.STOPPING
    patience.memory.endings.clear()  # as after a restart
    assert follow(one, replace(seen, listed=frozenset()), patience).status is NodeStatus.STOPPING


def test_no_word_from_the_provider_confirms_nothing(seen: Seen) -> None:
    for status in NodeStatus:
        if status not in {NodeStatus.STARTING, NodeStatus.READY}:
            assert follow(node(seen, status), replace(seen, listed=None), heard(seen)).status is status


def test_a_machine_found_again_after_its_end_is_ended_again(seen: Seen) -> None:
    assert after(seen, NodeStatus.GONE, is_listed=True) is NodeStatus.STOPPING


def test_a_ready_machine_that_vanished_is_gone_with_its_cause(seen: Seen) -> None:
    one = node(seen, NodeStatus.READY)
    new = follow(one, replace(seen, listed=frozenset()), heard(seen))
    assert (new.status, new.cause) == (NodeStatus.GONE, "vanished from the provider")


def test_a_new_machine_may_be_missing_from_the_list_for_a_while(seen: Seen) -> None:
    one, view = node(seen, NodeStatus.STARTING), replace(seen, listed=frozenset(), view=None)
    young = Patience(TIMING, Memory(launched_at={one.id: seen.wall_s - 5.0}))
    old = Patience(TIMING, Memory(launched_at={one.id: seen.wall_s - 20.0}))
    assert follow(one, view, young).status is NodeStatus.STARTING
    assert follow(one, view, old).status is NodeStatus.GONE


def test_a_machine_that_never_registers_is_lost(seen: Seen) -> None:
    one = node(seen, NodeStatus.STARTING)
    late = Patience(TIMING, Memory(launched_at={one.id: seen.wall_s - 601.0}))
    assert follow(one, replace(seen, listed=frozenset({one.id}), view=None), late).status is NodeStatus.LOST


def test_silence_is_a_loss_sooner_for_rollout_than_for_the_trainer(seen: Seen) -> None:
    words = {node.id: seen.wall_s - 20.0 for node in seen.nodes}
    patience = Patience(TIMING, Memory(last_word=words, answered_at=seen.wall_s))
    assert follow(node(seen, NodeStatus.READY), seen, patience).status is NodeStatus.LOST
    assert follow(node(seen, NodeStatus.READY, Role.TRAINER), seen, patience).status is NodeStatus.READY


def test_while_the_coordinator_is_away_only_its_own_machine_is_to_blame(seen: Seen) -> None:
    away = replace(seen, view=None, coordinator=None)
    patience = Patience(TIMING, Memory(answered_at=seen.wall_s - 61.0))
    rollout, head = node(seen, NodeStatus.READY), node(seen, NodeStatus.READY, Role.TRAINER)
    assert is_head(head)
    assert not is_head(rollout)
    assert follow(rollout, away, patience).status is NodeStatus.READY
    assert follow(head, away, patience).status is NodeStatus.LOST


def test_after_a_recovery_nodes_get_time_to_register_again(seen: Seen) -> None:
    patience = Patience(TIMING, Memory(epoch_since=seen.wall_s - 10.0, answered_at=seen.wall_s))
    assert follow(node(seen, NodeStatus.READY), seen, patience).status is NodeStatus.READY


def test_a_worker_of_whose_leases_nothing_comes_is_replaced_although_it_speaks(seen: Seen) -> None:
    one = node(seen, NodeStatus.READY)
    assert seen.view is not None
    views = tuple(
        view.model_copy(update={"trouble": "its samples contradict their leases"}) if view.node_id == one.id else view
        for view in seen.view.nodes
    )
    told = replace(seen, view=seen.view.model_copy(update={"nodes": views}), listed=frozenset({one.id}))
    lost = follow(one, told, heard(seen))
    assert (lost.status, lost.cause) == (NodeStatus.LOST, "broken: its samples contradict their leases")
    assert follow(one, replace(seen, listed=frozenset({one.id})), heard(seen)).status is NodeStatus.READY
