"""A controller over a simulation; made again from the same simulation it is the controller after a restart."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hexcloud.adapters.store import SqlitePrices
from hexcloud.controller.outside import EmulationPlan, Ports, RunSecrets, Timing
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.run import RunRecord
from hexcloud.simulator.simulation import Simulation


@pytest.fixture(scope="session")
def ports_of() -> Callable[[Simulation], Ports]:
    def make(sim: Simulation, timing: Timing | None = None) -> Ports:
        return Ports(
            clock=sim.clock,
            market=sim.market,
            provisioner=sim.provisioner,
            coordinator=sim.coordinator,
            store=sim.store,
            secrets=RunSecrets(b"0123456789abcdef"),
            emulation=EmulationPlan(sim.scale, sim.run.workload.version_bytes),
            timing=timing or Timing(poll_s=5.0, spend_lease_s=300.0, register_s=600.0, drain_s=60.0),
        )

    return make


@pytest.fixture(scope="session")
def controller_of(ports_of: Callable[[Simulation], Ports]) -> Callable[[Simulation], Controller]:
    def make(sim: Simulation) -> Controller:
        run: RunRecord = sim.run
        return Controller(run, ports_of(sim))

    return make


@pytest.fixture
def prices(tmp_path: Path) -> Iterator[SqlitePrices]:
    prices = SqlitePrices(tmp_path / "hexcloud.db")
    yield prices
    prices.close()
