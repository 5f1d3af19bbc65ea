from collections.abc import Callable
from dataclasses import replace

import pytest

from hexcloud.controller.bucket_word import tell_of_bucket, tell_of_weights_stores
from hexcloud.controller.hands import Hands
from hexcloud.controller.journal import Journal
from hexcloud.controller.memory import Memory
from hexcloud.controller.observe import observe
from hexcloud.controller.outside import Ports
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.messages import RunPhase, RunView
from hexcloud.domain.policy import Policy
from hexcloud.simulator.simulation import Simulation

Say = Callable[[dict[str, object] | None], list[str]]
Turn = Callable[[str | None], list[str]]


@pytest.fixture
def say(controller_of: Callable[[Simulation], Controller], ports_of: Callable[[Simulation], Ports]) -> Say:
    """Take a turn in which the coordinator says this (None: nothing); give the events of stores so far."""
    sim = Simulation(Policy(target_samples_per_s=20.0))
    controller_of(sim).reconcile_once()
    ports = ports_of(sim)
    view = RunView(
        run_id=sim.run.id,
        phase=RunPhase.TRAINING,
        epoch=0,
        version=40,
        steps=100,
        trained_samples=0,
        dropped_samples=0,
        first_step_at_s=None,
        last_step_at_s=None,
        staleness_histogram={},
        reward=0.0,
        samples_per_wall_s=0.0,
        overlap_share=0.0,
        trainer_wait_s=0.0,
        outstanding=0,
        checkpoint_version=20,
    )

    def take(told: dict[str, object] | None) -> list[str]:
        said = None if told is None else view.model_copy(update=told)
        seen = replace(observe(sim.run, ports, Memory()), view=said)
        hands = Hands(ports, Memory(), seen, Journal(sim.store, seen))
        tell_of_bucket(hands)
        tell_of_weights_stores(hands)
        if said is not None:
            sim.store.save_view(sim.run.id, said)
        kinds = [event.kind for _, event in sim.store.events(sim.run.id)]
        return [kind for kind in kinds if kind.startswith(("bucket", "weights_store"))]

    return take


@pytest.fixture
def turn(say: Say) -> Turn:
    """The same with what is said of the bucket."""
    return lambda trouble: say(None if trouble is None else {"store_trouble": trouble})


def test_a_bucket_that_is_away_is_told_once_and_so_is_its_return(turn: Turn) -> None:
    assert turn("") == []
    assert turn("access is denied") == ["bucket_away"]
    assert turn("access is still denied") == ["bucket_away"]
    assert turn(None) == ["bucket_away"]
    assert turn("") == ["bucket_away", "bucket_back"]
    assert turn("") == ["bucket_away", "bucket_back"]


def test_a_bucket_that_was_away_from_the_start_is_told_too(turn: Turn) -> None:
    assert turn("no such bucket") == ["bucket_away"]


def test_a_store_for_weights_that_fails_is_told_by_region_and_so_is_its_return(say: Say) -> None:
    def stores(*regions: str) -> dict[str, object]:
        return {"stores_trouble": {region: "HTTP 403" for region in regions}}

    assert say(stores()) == []
    assert say(stores("aws/a")) == ["weights_store_away"]
    assert say(stores("aws/a", "aws/b")) == ["weights_store_away"] * 2
    assert say(None) == say(stores("aws/a", "aws/b"))
    assert say(stores("aws/b"))[2:] == ["weights_store_back"]
