from collections.abc import Callable
from dataclasses import replace

import pytest

from hexcloud.controller.bucket_word import tell_of_bucket
from hexcloud.controller.hands import Hands
from hexcloud.controller.journal import Journal
from hexcloud.controller.memory import Memory
from hexcloud.controller.observe import observe
from hexcloud.controller.outside import Ports
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.messages import RunPhase, RunView
from hexcloud.domain.policy import Policy
from hexcloud.simulator.simulation import Simulation

Turn = Callable[[str | None], list[str]]


@pytest.fixture
def turn(controller_of: Callable[[Simulation], Controller], ports_of: Callable[[Simulation], Ports]) -> Turn:
    """Take a turn in which the coordinator says this of the bucket (None: says nothing); give the events so far."""
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

    def take(trouble: str | None) -> list[str]:
        said = None if trouble is None else view.model_copy(update={"store_trouble": trouble})
        seen = replace(observe(sim.run, ports, Memory()), view=said)
        tell_of_bucket(Hands(ports, Memory(), seen, Journal(sim.store, seen)))
        if said is not None:
            sim.store.save_view(sim.run.id, said)
        return [event.kind for _, event in sim.store.events(sim.run.id) if event.kind.startswith("bucket")]

    return take


def test_a_bucket_that_is_away_is_told_once_and_so_is_its_return(turn: Turn) -> None:
    assert turn("") == []
    assert turn("access is denied") == ["bucket_away"]
    assert turn("access is still denied") == ["bucket_away"]
    assert turn(None) == ["bucket_away"]
    assert turn("") == ["bucket_away", "bucket_back"]
    assert turn("") == ["bucket_away", "bucket_back"]


def test_a_bucket_that_was_away_from_the_start_is_told_too(turn: Turn) -> None:
    assert turn("no such bucket") == ["bucket_away"]
