"""What the run's own engines make corrects the next plan; what they do not make for want of work corrects nothing."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexcloud.controller.calibrate import CALIBRATED, GENERATIONS, TOLD_SHARE, calibrate, told_speeds
from hexcloud.controller.memory import Learning, Memory
from hexcloud.controller.observe import Seen, observe
from hexcloud.controller.outside import Ports
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.calibration import Factor, ModelClass, Phase
from hexcloud.domain.event import Event
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import NodeView
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Role, RolloutColumn
from hexcloud.domain.policy import Policy, ReplanSchedule
from hexcloud.planner.anew import column_anew
from hexcloud.simulator.simulation import Script, Simulation
from hexcloud.simulator.world import small_market

ControllerOf = Callable[[Simulation], Controller]
PortsOf = Callable[[Simulation], Ports]
TARGET = 20.0
TIGHT = Policy(target_samples_per_s=TARGET, survival_share=0.0, replan=ReplanSchedule(every=None))
"""One L40S machine is enough for it, and just so: every slot is needed when it is slower than thought."""
L40S_SAMPLES_PER_S = 26.728
"""What the estimator expects of that machine."""


def rented_for_real(sim: Simulation, provider: str = "acme") -> Simulation:
    """Say that the run's machines are no emulation."""
    sim.run = sim.run.model_copy(update={"spec": sim.run.spec.model_copy(update={"provider": provider})})
    sim.store.save_run(sim.run)
    return sim


def live(sim: Simulation, controller: Controller, turns: int, poll_s: float = 5.0) -> None:
    for _ in range(turns):
        controller.reconcile_once()
        sim.clock.sleep(poll_s)


def told(sim: Simulation) -> list[Event]:
    return [event for _, event in sim.store.events(sim.run.id) if event.kind == CALIBRATED]


def rollout_columns(sim: Simulation) -> list[RolloutColumn]:
    return [slot.rollout for slot in sim.store.plans[sim.run.id][1].slots if slot.rollout]


def gpu_of(column: RolloutColumn) -> str:
    offer = small_market().offer(column.offer_id)
    assert offer
    return offer.gpu


def slow(share: float = 0.7, policy: Policy = TIGHT) -> Simulation:
    return rented_for_real(Simulation(policy, Script(engines={"L40S": share * L40S_SAMPLES_PER_S})))


def test_engines_slower_than_their_estimate_are_learnt_and_the_next_plan_buys_what_is_missing(
    controller_of: ControllerOf,
) -> None:
    sim = slow()
    controller = controller_of(sim)
    live(sim, controller, turns=600)
    assert [column.samples_per_s for column in rollout_columns(sim)] == pytest.approx([L40S_SAMPLES_PER_S], rel=1e-4)
    events = told(sim)
    assert {event.fields["gpu"] for event in events} == {"L40S"}
    assert events[0].fields["speed_before"] == 1.0
    assert told_speeds(events) == {"L40S": pytest.approx(0.7, rel=0.07)}
    controller.request_replan("manual")
    live(sim, controller, turns=100)
    made = sum(min(one.samples_per_s, sim.cloud.engines.get(gpu_of(one), 1e9)) for one in rollout_columns(sim))
    assert 0.7 * L40S_SAMPLES_PER_S < TARGET < made, "what is rented now makes the target at its true speed"


def test_each_event_tells_a_move_of_more_than_a_twentieth_from_the_last_one(controller_of: ControllerOf) -> None:
    sim = slow()
    live(sim, controller_of(sim), turns=600)
    events = told(sim)
    speeds = [1.0, *(float(event.fields["speed_after"] or 0) for event in events)]
    assert [event.fields["speed_before"] for event in events] == speeds[:-1]
    assert all(abs(after / before - 1) > TOLD_SHARE for before, after in pairwise(speeds))


@settings(max_examples=8, deadline=None)
@given(speed=st.floats(0.6, 3.0))
def test_a_fleet_with_engines_to_spare_learns_nothing(controller_of: ControllerOf, speed: float) -> None:
    """Half the rollout must survive any loss, so there is twice as much as the trainer takes: engines wait for work."""
    sim = slow(speed, Policy(target_samples_per_s=TARGET))
    live(sim, controller_of(sim), turns=150)
    assert 0 < sim.cloud.filled_share() < 0.9
    assert sim.cloud.training.version > 10
    assert told(sim) == []
    assert [one.samples_per_s for one in rollout_columns(sim)] == pytest.approx([L40S_SAMPLES_PER_S] * 2, rel=1e-4)


def test_emulated_machines_teach_nothing(controller_of: ControllerOf) -> None:
    sim = rented_for_real(slow(), provider="local")
    controller = controller_of(sim)
    live(sim, controller, turns=300)
    controller.request_replan("manual")
    live(sim, controller, turns=2)
    assert told(sim) == []
    assert len(rollout_columns(sim)) == 1


def test_a_new_controller_goes_on_from_what_was_told(controller_of: ControllerOf) -> None:
    sim = slow()
    live(sim, controller_of(sim), turns=250)
    speed = told_speeds(told(sim))["L40S"]
    after = controller_of(sim)
    after.request_replan("manual")
    live(sim, after, turns=1)
    kept = [one.samples_per_s for one in rollout_columns(sim) if gpu_of(one) == "L40S"]
    assert kept == pytest.approx([speed * L40S_SAMPLES_PER_S], rel=1e-4)
    assert len(rollout_columns(sim)) == 2, "one more machine makes what is missing"


def test_weights_that_change_between_any_two_heartbeats_teach_nothing(controller_of: ControllerOf) -> None:
    sim = slow()
    live(sim, controller_of(sim), turns=300, poll_s=14.0)
    assert sim.cloud.training.version > 200
    assert told(sim) == []


# One node, heartbeat by heartbeat.

LUMP = 900_000
"""Tokens that come at once: a fleet of samples that began together."""
Word = tuple[float, int, int, int, bool]
"""Moment, samples running, version, tokens, is paused."""


@pytest.fixture(scope="module")
def seen(controller_of: ControllerOf, ports_of: PortsOf) -> Seen:
    """What a controller sees of a run with one rollout node."""
    sim = slow(1.0)
    live(sim, controller_of(sim), turns=40)
    return observe(sim.run, ports_of(sim), Memory())


def speeds_after(seen: Seen, words: Sequence[Word], learning: Learning | None = None) -> dict[str, float]:
    learning, store = learning or Learning(), Simulation(TIGHT).store
    for word in words:
        seen_then = replace(seen, view=seen.view and seen.view.model_copy(update={"nodes": nodes_that_say(seen, word)}))
        corrected = calibrate(seen_then, store, learning)
    known = seen.market.calibration.factors
    return {one.gpu: one.speed for one in corrected.market.calibration.factors[len(known) :]}


def nodes_that_say(seen: Seen, word: Word) -> tuple[NodeView, ...]:
    at_s, running, version, tokens, is_paused = word
    said = {
        "heartbeat_at_s": at_s,
        "running": running,
        "version": version,
        "generated_tokens": tokens,
        "is_paused": is_paused,
    }
    nodes = seen.view.nodes if seen.view else ()
    return tuple(node.model_copy(update=said) for node in nodes if node.role is Role.ROLLOUT)


def node_of(seen: Seen) -> tuple[int, float]:
    """Slots of the one node, and the response tokens per second that it should generate."""
    (slot,) = (slot for slot in (seen.placement.slots if seen.placement else ()) if slot.rollout)
    assert slot.rollout
    return slot.rollout.slots, slot.rollout.samples_per_s * seen.run.workload.response_tokens


def full(seen: Seen, share: float, beats: int = 200, every_s: float = 5.0) -> list[Word]:
    slots, tokens_per_s = node_of(seen)
    return [(every_s * n, slots, 3, 1 + int(share * tokens_per_s * every_s * n), False) for n in range(beats)]


@pytest.mark.parametrize("share", [0.7, 1.0, 1.3])
def test_a_full_node_moves_its_gpu_towards_what_it_makes_and_no_other(seen: Seen, share: float) -> None:
    speeds = speeds_after(seen, full(seen, share))
    assert speeds.keys() == {"L40S"}
    assert min(share, 1.0) - 1e-6 <= speeds["L40S"] <= max(share, 1.0) + 1e-6
    assert abs(speeds["L40S"] - share) <= 0.5 * abs(1.0 - share) + 1e-6


def test_tokens_counted_sample_by_sample_weigh_no_more_than_a_steady_flow(seen: Seen) -> None:
    steady = full(seen, 0.7, beats=900, every_s=1.0)
    lumpy = [(at_s, running, version, 1 + tokens // LUMP * LUMP, False) for at_s, running, version, tokens, _ in steady]
    assert len({word[3] for word in lumpy}) < len(lumpy) / 20
    assert speeds_after(seen, lumpy)["L40S"] == pytest.approx(speeds_after(seen, steady)["L40S"], rel=0.05)


FATES = ["waits", "pauses", "loads", "restarts"]


@pytest.mark.parametrize("usual", FATES)
@settings(max_examples=20, deadline=None, phases=[hypothesis.Phase.generate])  # shrinking would take minutes
@given(data=st.data())
def test_what_is_not_full_running_and_of_one_version_moves_nothing(seen: Seen, usual: str, data: st.DataObject) -> None:
    slots, tokens_per_s = node_of(seen)
    version, tokens, words = 0, 0, []
    fates = data.draw(st.lists(st.sampled_from([usual] * 4 + FATES), min_size=60, max_size=60))
    for n, fate in enumerate(fates):
        version += fate == "loads"
        tokens = 0 if fate == "restarts" else tokens + data.draw(st.integers(1, int(10 * tokens_per_s)))
        running = data.draw(st.integers(0, int(0.89 * slots))) if fate == "waits" else slots
        words.append((10.0 * n, running, version, tokens, fate == "pauses"))
    assert speeds_after(seen, words) == {}


def test_a_node_with_a_few_slots_free_is_compared_with_the_estimate_for_so_many_samples(seen: Seen) -> None:
    (column,) = (slot.rollout for slot in (seen.placement.slots if seen.placement else ()) if slot.rollout)
    offer = small_market().offer(OfferId("aws/us-east-1/a/8xL40S/spot"))
    assert offer
    fewer = column.model_copy(update={"batch": int(0.92 * column.batch)})
    expected = column_anew(fewer, offer, seen.market, seen.run.workload).samples_per_s
    assert expected < 0.98 * column.samples_per_s
    words = [(word[0], fewer.slots, *word[2:]) for word in full(seen, expected / column.samples_per_s)]
    assert speeds_after(seen, words)["L40S"] == pytest.approx(1.0, rel=1e-3)


def test_a_new_coordinator_is_heard_from_the_beginning(controller_of: ControllerOf, ports_of: PortsOf) -> None:
    sim, memory = slow(), Memory()
    live(sim, controller_of(sim), turns=40)
    calibrate(observe(sim.run, ports_of(sim), memory), sim.store, memory.learning)
    assert memory.learning.beats
    observe(sim.run, ports_of(sim), memory)
    assert memory.learning.beats
    memory.coordinator = NodeId("another head"), 0
    observe(sim.run, ports_of(sim), memory)
    assert memory.learning.beats == {}


def test_a_node_that_starts_over_between_two_heartbeats_is_heard_from_then_on(seen: Seen) -> None:
    once = full(seen, 0.7, beats=16)
    again = [(word[0] + 80.0, *word[1:]) for word in once]
    learning = Learning()
    speeds_after(seen, [*once, *again], learning)
    (lesson,) = learning.lessons.values()
    assert lesson.stretch.seconds == 2 * 15 * 5.0


def test_what_is_heard_of_less_than_a_few_generations_teaches_nothing_yet(seen: Seen) -> None:
    (column,) = (slot.rollout for slot in (seen.placement.slots if seen.placement else ()) if slot.rollout)
    beats = int(GENERATIONS * column.generation_s / 5.0)
    assert speeds_after(seen, full(seen, 0.7, beats=beats)) == {}
    assert speeds_after(seen, full(seen, 0.7, beats=beats + 2)) != {}


def test_a_node_with_other_slots_than_planned_teaches_nothing(seen: Seen) -> None:
    slots, _ = node_of(seen)
    nodes = tuple(node.model_copy(update={"slots": slots // 2}) for node in (seen.view.nodes if seen.view else ()))
    other = replace(seen, view=seen.view and seen.view.model_copy(update={"nodes": nodes}))
    assert speeds_after(other, full(seen, 0.7)) == {}


def test_the_bounds_are_around_what_the_market_says_of_the_gpu(seen: Seen) -> None:
    """A profile that found an L40S at 0.4 of the estimate is corrected from there, not lifted to 0.5."""
    factor = Factor(gpu="L40S", phase=Phase.ROLLOUT, model_class=ModelClass.SMALL, speed=0.4, source="hexcloud profile")
    calibration = seen.market.calibration.with_factors((factor,))
    profiled = replace(seen, market=seen.market.model_copy(update={"calibration": calibration}))
    assert speeds_after(profiled, full(seen, 0.4))["L40S"] == pytest.approx(0.4, rel=1e-3)
    assert speeds_after(profiled, full(seen, 0.3))["L40S"] < 0.35


def test_before_anything_is_learnt_the_market_is_as_it_was(seen: Seen) -> None:
    assert calibrate(seen, Simulation(TIGHT).store, Learning()).market == seen.market
    assert seen.market.calibration == small_market().calibration
