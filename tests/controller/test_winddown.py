from collections.abc import Callable
from dataclasses import replace

import pytest

from hexcloud.controller.outside import Ports, Timing
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.errors import RateLimitError
from hexcloud.domain.market import Market
from hexcloud.domain.policy import Policy
from hexcloud.domain.run import RunState
from hexcloud.simulator.cloud import Habits
from hexcloud.simulator.faults import Fault
from hexcloud.simulator.prices import SimMarket
from hexcloud.simulator.simulation import Script, Simulation

ControllerOf = Callable[[Simulation], Controller]


def stopped(controller_of: ControllerOf, script: Script, after: int) -> tuple[Simulation, RunState]:
    sim = Simulation(Policy(target_samples_per_s=20.0), script)
    controller = controller_of(sim)
    for _ in range(after):
        controller.reconcile_once()
        sim.clock.sleep(5.0)
    controller.stop("Ctrl-C")
    return sim, controller.run_until_done()


def test_a_stop_waits_for_the_last_checkpoint(controller_of: ControllerOf) -> None:
    sim, state = stopped(controller_of, Script(), after=60)
    assert state is RunState.DONE
    assert sim.cloud.training.checkpoint_version == sim.cloud.training.version > 0


def test_a_coordinator_that_never_says_done_is_not_waited_for_for_ever(controller_of: ControllerOf) -> None:
    sim, state = stopped(controller_of, Script(habits=Habits(checkpoint_s=1e6)), after=60)
    assert state is RunState.FAILED
    assert not sim.cloud.running()
    assert sim.clock.now_s() - sim.start_s < 60 * 5 + 60 + 30
    run = sim.store.run(sim.run.id)
    assert run is not None
    assert "did not confirm a last checkpoint" in run.reason


def test_a_run_stopped_before_it_trained_is_torn_down_at_once(controller_of: ControllerOf) -> None:
    sim, state = stopped(controller_of, Script(), after=3)
    assert state is RunState.DONE
    assert not sim.cloud.running()
    assert sim.clock.now_s() - sim.start_s < 45


def test_a_provider_that_never_answers_again_is_given_up_when_every_lease_has_lapsed(
    controller_of: ControllerOf,
) -> None:
    down = tuple(
        Fault(nth, RateLimitError("down"), operation) for nth in range(60, 400) for operation in ("list", "terminate")
    )
    sim, state = stopped(controller_of, Script(faults=down), after=60)
    assert state is RunState.FAILED
    assert not sim.cloud.running(), "their spend leases ended them"


def test_a_run_is_not_over_while_a_machine_of_a_broken_off_launch_may_still_show(controller_of: ControllerOf) -> None:
    habits = Habits(provision_s=300.0, visible_after_s=10.0)
    sim = Simulation(Policy(target_samples_per_s=20.0), Script(habits=habits))
    controller = controller_of(sim)
    controller.reconcile_once()
    assert sim.provisioner.list_nodes(sim.run.id) == () and sim.cloud.running(), "asked for, and not listed yet"
    controller.stop("Ctrl-C")
    asked_s = sim.clock.now_s()
    assert controller.run_until_done() is RunState.DONE
    assert not sim.cloud.running()
    assert sim.clock.now_s() - asked_s > Timing().visible_s


class SlowMarket:
    """The simulation's market after our fleet has learned how long its pools take to start. Implements MarketSource."""

    def __init__(self, market: SimMarket, startup_s: float) -> None:
        self._market, self._startup_s = market, startup_s

    def market(self, now_s: float) -> Market:
        listed = self._market.market(now_s)
        offers = tuple(offer.model_copy(update={"startup_s": self._startup_s}) for offer in listed.offers)
        return listed.model_copy(update={"offers": offers})


@pytest.mark.parametrize("startup_s", [120.0, 900.0])
def test_a_silent_provider_gets_the_time_that_its_pools_take_to_start(
    ports_of: Callable[[Simulation], Ports], startup_s: float
) -> None:
    faults = (Fault(nth, RateLimitError("down"), what) for nth in range(60, 900) for what in ("list", "terminate"))
    sim = Simulation(Policy(target_samples_per_s=20.0), Script(faults=tuple(faults)))
    ports = replace(ports_of(sim), market=SlowMarket(sim.market, startup_s))
    controller = Controller(sim.run, ports)
    for _ in range(60):
        controller.reconcile_once()
        sim.clock.sleep(5.0)
    controller.stop("Ctrl-C")
    asked_s = sim.clock.now_s()
    assert controller.run_until_done() is RunState.FAILED
    timing = ports.timing
    lapsed_s = timing.checkpoint_s + startup_s + timing.spend_lease_s + 2 * timing.teardown_s
    assert lapsed_s <= sim.clock.now_s() - asked_s <= lapsed_s + 3 * timing.poll_s
