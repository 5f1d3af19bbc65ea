from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from hexcloud.controller.outside import Ports
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.event import Event
from hexcloud.domain.market import Market
from hexcloud.domain.policy import Policy
from hexcloud.ports import MarketSource
from hexcloud.simulator.capacity import CapacityStep
from hexcloud.simulator.prices import PriceStep
from hexcloud.simulator.simulation import Script, Simulation
from hexcloud.simulator.world import small_market

ControllerOf = Callable[[Simulation], Controller]
OFFERS = small_market().offers


def lived(controller_of: ControllerOf, script: Script, turns: int) -> list[Event]:
    sim = Simulation(Policy(target_samples_per_s=20.0), script)
    controller = controller_of(sim)
    for turn in range(turns):
        if turn == 50:
            controller.request_replan("manual")
        controller.reconcile_once()
        sim.clock.sleep(5.0)
    return [event for _, event in sim.store.events(sim.run.id) if event.kind in {"replan", "price_shift"}]


def test_a_burst_of_reasons_is_one_replan_that_names_them_all(controller_of: ControllerOf) -> None:
    halved = tuple(PriceStep(offer.id, 250.0, offer.usd_per_hour / 2) for offer in OFFERS)
    events = lived(controller_of, Script(prices=halved), turns=60)
    replans = [event for event in events if event.kind == "replan"]
    assert [event.fields["trigger"] for event in replans] == ["start", "manual+price"]
    assert 0 < len(events) - len(replans) <= 5, "a market-wide step names only the largest shifts"


def test_each_replan_tells_what_the_report_needs(controller_of: ControllerOf) -> None:
    replan = lived(controller_of, Script(), turns=60)[-1]
    assert set(replan.fields) == {"trigger", "verdict", "reason", "usd_per_hour_before", "usd_per_hour_after"}
    assert replan.fields["verdict"] == "stayed"
    assert replan.fields["usd_per_hour_before"] == replan.fields["usd_per_hour_after"]


def test_when_no_plan_is_possible_the_old_one_is_kept(controller_of: ControllerOf) -> None:
    sim = Simulation(
        Policy(target_samples_per_s=20.0), Script(capacity=tuple(CapacityStep(one.id, 240.0, 0) for one in OFFERS))
    )
    controller = controller_of(sim)
    for _ in range(120):
        controller.reconcile_once()
        sim.clock.sleep(5.0)
    reasons = [str(event.fields["reason"]) for _, event in sim.store.events(sim.run.id) if event.kind == "replan"]
    assert any(reason.startswith("no plan: ") for reason in reasons)
    assert sim.store.plan(sim.run.id) is not None
    assert sim.cloud.running(), "what was rented on demand goes on"


@dataclass(frozen=True)
class YuanMarket:
    """The same offers listed in yuan, of which a dollar buys fewer from one moment on."""

    dollars: MarketSource
    rate_falls_at_s: float

    def market(self, now_s: float) -> Market:
        market = self.dollars.market(now_s)
        usd_per_unit = 0.2 if now_s < self.rate_falls_at_s else 0.1
        rate = {"currency": "CNY", "usd_per_unit": usd_per_unit}
        offers = tuple(
            offer.model_copy(update={**rate, "usd_per_hour": 5 * offer.usd_per_hour * usd_per_unit})
            for offer in market.offers
        )
        return market.model_copy(update={"offers": offers})


@pytest.mark.parametrize("restarts", [False, True])
def test_a_fall_of_the_exchange_rate_is_no_price_shift(ports_of: Callable[..., Ports], restarts: bool) -> None:
    sim = Simulation(Policy(target_samples_per_s=20.0))
    ports = ports_of(sim)
    ports = replace(ports, market=YuanMarket(ports.market, ports.clock.now_s() + 150.0))
    controller = Controller(sim.run, ports)
    for turn in range(60):
        if restarts and turn == 50:
            controller = Controller(sim.run, ports)
        controller.reconcile_once()
        sim.clock.sleep(5.0)
    assert ports.market.market(ports.clock.now_s()).offers[0].usd_per_unit == 0.1
    told = [event.fields.get("trigger") for _, event in sim.store.events(sim.run.id) if event.kind == "replan"]
    assert told == ["start"]
    assert not [event for _, event in sim.store.events(sim.run.id) if event.kind == "price_shift"]
