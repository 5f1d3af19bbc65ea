"""frontier: what other throughputs would cost, as `plan --frontier` and `--html` show it."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hexcloud.cli.output import say
from hexcloud.domain.errors import ConfigError, MarketError

if TYPE_CHECKING:
    from hexcloud.cli.chart import Chart
    from hexcloud.cli.planned import Planned
    from hexcloud.domain.offer import OfferId
    from hexcloud.planner.frontier import Fleet, FrontierStep

PNG = ".png"


def require_png(path: Path) -> None:
    """Raise ConfigError for a picture that is no PNG."""
    if path.suffix.lower() != PNG:
        raise ConfigError(f"--frontier {path}: the picture is a PNG, so give it a name that ends in {PNG}")


def require_writable(option: str, path: Path) -> None:
    """Raise ConfigError for a file that cannot be written: found before anything is solved."""
    is_new = not path.exists()
    try:
        with path.open("ab"):
            pass
        if is_new:  # a plan that fails leaves no empty file behind
            path.unlink()
    except OSError as error:
        raise ConfigError(f"{option} {path}: cannot be written: {error.strerror}") from error


def solve_frontier(planned: "Planned") -> tuple["FrontierStep", ...]:
    """Return the frontier around a market's plan, telling each step as it is solved."""
    from hexcloud.planner.frontier import PLAN, SHARES, frontier

    given = planned.given
    steps: list[FrontierStep] = []
    allocation = planned.result.plan.allocation
    places = None if planned.is_own_fleet else partial(_sky_places, planned)
    for step in frontier(given.market, given.workload, given.policy, allocation, places):
        steps.append(step)
        price = step.usd_per_hour.get(PLAN)
        told = "no plan" if price is None else f"{price:.2f} USD/h"
        tokens_per_s = step.samples_per_s * given.workload.tokens_per_sample
        say(f"frontier {len(steps)}/{len(SHARES)}: {tokens_per_s:.0f} tok/s, {told}")
    return tuple(steps)


def _sky_places(planned: "Planned", fleets: "tuple[Fleet, ...]") -> "tuple[frozenset[OfferId], ...]":
    """Ask SkyPilot's optimizer where it would rent each step's machines. What it cannot say is no reason to stop."""
    from hexcloud import wiring
    from hexcloud.adapters.markets.sky_optimizer import is_installed

    if is_installed():
        say(f"asking SkyPilot's optimizer about {len(fleets)} throughputs ...")
    try:
        return wiring.sky_picks_of(planned.given.market, planned.result, fleets)
    except MarketError as error:
        say(str(error))
        return tuple(frozenset() for _ in fleets)


def chart_of(planned: "Planned", steps: tuple["FrontierStep", ...]) -> "Chart":
    """Return the picture of a frontier: the plan's line first, then buyers as they come."""
    from hexcloud.cli.chart import Chart, Line
    from hexcloud.planner.baselines import DEAREST

    allocation, workload = planned.result.plan.allocation, planned.given.workload
    tokens = workload.tokens_per_sample
    names = dict.fromkeys(name for step in steps for name in step.usd_per_hour)
    lines = tuple(
        Line(name, tuple((s.samples_per_s * tokens, s.usd_per_hour[name]) for s in steps if name in s.usd_per_hour))
        for name in names
    )
    return Chart(
        title=f"{workload.model.name}: what throughput costs",
        lines=lines,
        here=(allocation.samples_per_s * tokens, allocation.usd_per_hour),
        cap_usd_per_hour=planned.given.policy.max_usd_per_hour,
        note=f"\n(solved at the marks; a buyer without one cannot, or pays over {DEAREST:.0f} times the plan's price)",
    )


def frontier_fields(planned: "Planned", steps: tuple["FrontierStep", ...]) -> list[dict[str, object]]:
    """Return the frontier for a machine."""
    tokens = planned.given.workload.tokens_per_sample
    return [{"tokens_per_s": step.samples_per_s * tokens, "usd_per_hour": step.usd_per_hour} for step in steps]
