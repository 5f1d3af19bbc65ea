"""Plan a 7B policy at three throughputs on the bundled market, through the library. Rents nothing; takes two seconds.

Run it with `python examples/01_plan.py`. No network, no cloud account, no torch.
"""

from collections import Counter

from hexcloud import wiring
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.plan import ExecutionPlan, Role, Slot
from hexcloud.domain.run import RunSpec
from hexcloud.planner.plan import make_plan

TARGETS = ("10k", "20k", "40k")


def main() -> None:
    """Print what each throughput costs and what it would be made with."""
    print(f"{'tok/s':>6}  {'USD/h':>6}  {'bound':>6}  {'USD/Mtok':>8}  machines")
    for target in TARGETS:
        given = wiring.snapshot_input(RunSpec(target=target))
        plan = make_plan(given.market, given.workload, given.policy, FleetState()).plan
        price, made = plan.allocation.usd_per_hour, plan.forecast.tokens_per_s
        bound = plan.allocation.proof.lower_bound_usd_per_hour or 0.0
        usd_per_mtok = price / 3600 / made * 1e6
        print(f"{made:6.0f}  {price:6.2f}  {bound:6.2f}  {usd_per_mtok:8.4f}  {machines(plan)}")


def machines(plan: ExecutionPlan) -> str:
    """Return the plan's machines in one line, the trainer's first."""
    roles = (f"{role.value}: {kinds(plan.placement.role(role))}" for role in (Role.TRAINER, Role.ROLLOUT))
    return "; ".join(roles)


def kinds(slots: tuple[Slot, ...]) -> str:
    """Count slots by cloud, instance type and tenure."""
    parts = (slot.offer_id.split("/") for slot in slots)
    counts = Counter(f"{cloud} {instance_type} {tenure}" for cloud, _, _, instance_type, tenure in parts)
    return ", ".join(f"{count} x {kind}" for kind, count in sorted(counts.items()))


if __name__ == "__main__":
    main()
