"""A day of a small fleet on the simulator: prices move, machines are lost, the controller re-buys. Takes seconds.

Run it with `python examples/02_simulate.py`. No network, no cloud account, no torch; the prices are made up.
"""

import random
from textwrap import shorten

from hexcloud.controller.outside import EmulationPlan, Ports, RunSecrets, Timing
from hexcloud.controller.reconcile import Controller
from hexcloud.domain.event import Event
from hexcloud.domain.policy import Policy
from hexcloud.simulator.capacity import CapacityStep
from hexcloud.simulator.cloud import Loss, LossKind
from hexcloud.simulator.prices import spot_walk
from hexcloud.simulator.simulation import Script, Simulation
from hexcloud.simulator.world import small_market

HOUR_S = 3600
POLL_S = 60.0
WIDTH = 150
POLICY = Policy(name="cheapest", target_samples_per_s=20.0, budget_usd=1500.0)
TOLD = {"replan", "node_lost", "pool_blocked", "run_stopping", "run_ended"}


def main() -> None:
    """Simulate a day and print what happened."""
    sim = Simulation(POLICY, script())
    timing = Timing(poll_s=POLL_S, spend_lease_s=600.0, silent_rollout_s=90.0)
    controller = Controller(sim.run, ports(sim, timing))
    print(f"{'time':>5}  {'spent USD':>9}  {'tok/s':>7}  what happened")
    told = 0
    for turn in range(int(24 * HOUR_S / POLL_S)):
        if turn and turn % int(HOUR_S / POLL_S) == 0:
            controller.request_replan("schedule")
        controller.reconcile_once()
        told = tell(sim, told)
        sim.clock.sleep(POLL_S)
    controller.stop("the day is over")
    controller.run_until_done()
    tell(sim, told)
    summary(sim)


def script() -> Script:
    """Return the day: spot prices walk every hour, one pool dries up, four machines are lost."""
    prices = spot_walk(small_market(), random.Random(4), 0.0, hours=24, every_s=HOUR_S)
    dry = small_market().offers[-4].id
    return Script(
        prices=tuple(prices),
        capacity=(CapacityStep(dry, 9.5 * HOUR_S, 0), CapacityStep(dry, 14.2 * HOUR_S, 8)),
        losses=(
            Loss(2.3 * HOUR_S, LossKind.PREEMPT, nth=0),
            Loss(6.1 * HOUR_S, LossKind.SILENCE, nth=1),
            Loss(12.7 * HOUR_S, LossKind.PREEMPT, nth=2),
            Loss(18.4 * HOUR_S, LossKind.PREEMPT, nth=0),
        ),
    )


def ports(sim: Simulation, timing: Timing) -> Ports:
    """Give the controller the simulated world for the real one."""
    return Ports(
        clock=sim.clock,
        market=sim.market,
        provisioner=sim.provisioner,
        coordinator=sim.coordinator,
        store=sim.store,
        secrets=RunSecrets(b"not a secret: simulation"),
        emulation=EmulationPlan(sim.scale, sim.run.workload.model.weight_bytes),
        timing=timing,
    )


def tell(sim: Simulation, told: int) -> int:
    """Print the new events that a reader cares about; return the number of the last one."""
    for number, event in sim.store.events(sim.run.id, after=told):
        told = number
        if event.kind in TOLD and not is_dull(event):
            hours, minutes = divmod(int(event.at_s - sim.start_s) // 60, 60)
            spent, view = sim.store.spent_usd(sim.run.id), sim.store.view(sim.run.id)
            rate = view.samples_per_wall_s * sim.run.workload.tokens_per_sample if view else 0.0
            what = shorten(f"{event.kind}: {event.text}", WIDTH, placeholder=" ...")
            print(f"{hours:02}:{minutes:02}  {spent:9.2f}  {rate:7.0f}  {what}")
    return told


def is_dull(event: Event) -> bool:
    """Was it a scheduled re-plan that changed nothing?"""
    return event.fields.get("trigger") == "schedule" and event.fields.get("verdict") == "stayed"


def summary(sim: Simulation) -> None:
    """Print the day in five lines."""
    events = [event for _, event in sim.store.events(sim.run.id)]
    replans = [event for event in events if event.kind == "replan"]
    moves = sum(event.fields["verdict"] == "moved" for event in replans)
    training = sim.cloud.training
    tokens = training.version * training.samples_per_step * sim.run.workload.tokens_per_sample
    achieved = tokens / (24 * HOUR_S)
    asked = (POLICY.target_samples_per_s or 0.0) * sim.run.workload.tokens_per_sample
    print()
    print(f"{len(replans)} re-plans, {moves} of them moved; {sum(e.kind == 'node_lost' for e in events)} machines lost")
    print(f"{training.version} steps trained, {achieved:,.0f} tok/s achieved of {asked:,.0f} asked")
    print(f"{sim.store.spent_usd(sim.run.id):.2f} USD spent of a budget of {POLICY.budget_usd:.2f} (ledger)")
    print(
        f"{sim.billed_usd():.2f} USD of rent billed by the simulated clouds; {len(sim.cloud.running())} machines left"
    )


if __name__ == "__main__":
    main()
