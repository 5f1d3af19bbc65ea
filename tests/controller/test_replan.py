from collections.abc import Callable

from hexcloud.controller.reconcile import Controller
from hexcloud.domain.event import Event
from hexcloud.domain.policy import Policy
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
