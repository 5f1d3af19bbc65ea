"""Picture: a run at one moment, read from the store by any process, and its figures in the units a user sees."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hexcloud.domain.event import Event
    from hexcloud.domain.fleet import Node, RunId
    from hexcloud.domain.messages import RunView
    from hexcloud.domain.plan import Placement
    from hexcloud.domain.report import BaselineRow
    from hexcloud.domain.run import RunRecord
    from hexcloud.ports import Store


@dataclass(frozen=True)
class Picture:
    """What is known of a run now."""

    run: "RunRecord"
    nodes: tuple["Node", ...]
    """Those that the provider has not confirmed as gone."""
    placement: "Placement | None"
    view: "RunView | None"
    spent_usd: float
    events: tuple["Event", ...]
    baselines: tuple["BaselineRow", ...]
    """What simpler buyers would have paid when the run began, all terms."""
    first_usd_per_hour: float | None
    """The run's first plan in the same terms, USD/h."""

    @property
    def target_tokens_per_s(self) -> float | None:
        """What was asked for, trained tok/s."""
        target = self.run.policy.target_samples_per_s
        return target and target * self.run.workload.tokens_per_sample

    @property
    def tokens_per_s(self) -> float:
        """Recent trained tok/s on the run clock."""
        samples_per_wall_s = self.view.samples_per_wall_s if self.view else 0.0
        return samples_per_wall_s / self.run.clock_scale * self.run.workload.tokens_per_sample

    @property
    def usd_per_hour(self) -> float:
        """Rent at today's prices, as of the last re-plan."""
        replans = [event for event in self.events if event.kind == "replan"]
        return float(replans[-1].fields.get("usd_per_hour_after") or 0.0) if replans else 0.0

    @property
    def alarms(self) -> tuple[str, ...]:
        """What was last said of each machine that should have ended and has not."""
        from hexcloud.controller.hands import END_REFUSED

        alarms: dict[str, str] = {}
        for event in self.events:
            if event.kind == END_REFUSED:
                alarms[event.node] = event.text
            elif event.kind == "node_gone":
                alarms.pop(event.node, None)
        return tuple(alarms.values())

    @property
    def staleness(self) -> tuple[float, int]:
        """Mean and largest age of the trained samples, versions."""
        ages = self.view.staleness_histogram if self.view else {}
        return sum(age * count for age, count in ages.items()) / max(1, sum(ages.values())), max(ages, default=0)


def take(store: "Store", run_id: "RunId") -> Picture:
    """Read a run. Raises StoreError, and ConfigError when there is no such run."""
    from hexcloud.controller.report import BASELINES, read_baselines, read_first_price
    from hexcloud.domain.errors import ConfigError
    from hexcloud.domain.fleet import NodeStatus

    run = store.run(run_id)
    if run is None:
        raise ConfigError(f"run {run_id!r} is unknown")
    events = tuple(event for _, event in store.events(run_id))
    accepted = store.plan(run_id)
    kept = [event for event in events if event.kind == BASELINES]
    return Picture(
        run=run,
        nodes=tuple(node for node in store.nodes(run_id) if node.status is not NodeStatus.GONE),
        placement=accepted[1] if accepted else None,
        view=store.view(run_id),
        spent_usd=store.spent_usd(run_id),
        events=events,
        baselines=read_baselines(kept[-1]) if kept else (),
        first_usd_per_hour=read_first_price(kept[-1]) if kept else None,
    )


def emulation_note(run: "RunRecord") -> str:
    """Return the one line that says what is real and what is in fast motion."""
    if run.spec.is_real:
        return f"real machines: {run.spec.provider} rents them, and your accounts are billed"
    return (
        f"emulated speed: 1 wall second = {run.clock_scale:.3g} run seconds; the machines are processes on this "
        "computer, prices and money are emulated and nobody is billed"
    )


def progress_line(picture: Picture) -> str:
    """Return where the run is, in one line."""
    view, target = picture.view, picture.target_tokens_per_s
    budget = picture.run.policy.budget_usd
    mean, oldest = picture.staleness
    parts = [
        f"{picture.run.state.value}",
        f"step {view.version if view else 0}/{picture.run.spec.steps}",
        f"{picture.tokens_per_s:.0f}" + (f" of {target:.0f}" if target else "") + " tok/s",
        f"reward {view.reward if view else 0.0:.3f}",
        f"staleness {mean:.1f} mean, {oldest} max of {picture.run.workload.eta}",
        f"{len(picture.nodes)} nodes, {picture.usd_per_hour:.2f} USD/h",
        f"spent {picture.spent_usd:.2f}" + (f" of {budget:.2f}" if budget else "") + " USD",
    ]
    return " | ".join(parts)
