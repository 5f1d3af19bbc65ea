import pytest

from hexcloud.domain.errors import StoreError
from hexcloud.domain.policy import Policy
from hexcloud.simulator.faults import Fault
from hexcloud.simulator.prices import PriceStep
from hexcloud.simulator.simulation import Script, Simulation
from hexcloud.simulator.world import small_market

OFFER = small_market().offers[0].id


def test_moments_of_a_script_count_from_the_start() -> None:
    sim = Simulation(Policy(), Script(prices=(PriceStep(OFFER, 60.0, 5.0),)))
    before = sim.market.price(OFFER, sim.clock.now_s())
    sim.clock.sleep(60.0)
    assert before != sim.market.price(OFFER, sim.clock.now_s()) == 5.0


def test_faults_strike_the_first_call_of_the_controller_and_not_the_setting_up() -> None:
    sim = Simulation(Policy(), Script(faults=(Fault(0, StoreError("locked"), "store"),)))
    with pytest.raises(StoreError):
        sim.store.run(sim.run.id)
    assert sim.store.run(sim.run.id) == sim.run
