"""What a run on real machines needs done beside its turns: prices read anew, and machines of dead runs looked for."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from hexcloud.cli.output import say

if TYPE_CHECKING:
    from hexcloud.domain.event import Event
    from hexcloud.domain.fleet import Rented
    from hexcloud.domain.run import RunRecord, RunSpec
    from hexcloud.ports import Timer

SWEEP_EVERY = "30m"
PATIENCE_S = 30.0
"""Wall seconds for machines of an ended run to end: a controller that starts has other work; the next sweep goes on."""
STRAYS = "strays"
"""Kind of the event that tells of machines that nobody looks after."""
PRICES = "prices_problem"
"""Kind of the event that tells which prices could not be read; the last good ones stay in force."""


class Schedules:
    """Runs both again and again inside a `with`; for a run whose machines are emulated it does nothing."""

    def __init__(self, run: "RunRecord") -> None:
        self._run = run
        self._timers: list[Timer] = []
        self._told: dict[str, str] = {}

    def __enter__(self) -> "Schedules":
        """Look for forgotten machines now, and begin."""
        if self._run.spec.is_real:
            self._sweep()
            self._begin(SWEEP_EVERY, self._sweep)
            if self._run.spec.refresh is not None:
                self._begin(self._run.spec.refresh, self._refresh)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End; waits for what is being done just now."""
        for timer in self._timers:
            timer.stop()

    def _begin(self, every: str, act: Callable[[], None]) -> None:
        from hexcloud import wiring
        from hexcloud.domain.policy import ReplanSchedule

        timer = wiring.timer(self._run)
        timer.start(ReplanSchedule(every=every), act)
        self._timers.append(timer)

    def _sweep(self) -> None:
        """End machines of runs that have ended, and tell of those that nobody here looks after."""
        from hexcloud.domain.errors import HexcloudError

        try:
            self._tell(STRAYS, "; ".join(swept(self._run)))
        except HexcloudError as error:
            self._tell(STRAYS, f"the accounts could not be asked for forgotten machines: {error}")

    def _refresh(self) -> None:
        """Read live prices; the next turn sees them, and a moved one is judged."""
        self._tell(PRICES, "; ".join(refresh_prices(self._run.policy.clouds)))

    def _tell(self, kind: str, text: str) -> None:
        """Say and record news, once; a store that is gone hears of it the next time."""
        from hexcloud import wiring
        from hexcloud.domain.errors import StoreError

        if not text or self._told.get(kind) == text:
            return
        try:
            wiring.open_store().add_event(self._run.id, self._event(kind, text))
        except StoreError:
            return
        self._told[kind] = text
        say(text)

    def _event(self, kind: str, text: str) -> "Event":
        from hexcloud import wiring
        from hexcloud.domain.event import Event

        clock = wiring.clock(self._run)
        return Event(at_s=clock.now_s(), wall_s=clock.wall_s(), kind=kind, text=text)


def swept(run: "RunRecord") -> list[str]:
    """End the machines of ended runs on all accounts; return what a user should know. Raises StoreError."""
    from hexcloud import wiring
    from hexcloud.cli.drive import is_controlled
    from hexcloud.controller.sweep import ENDED, end_all, survey

    accounts, known = wiring.account_rolls(), wiring.runs_by_tag(wiring.open_store())
    seen = survey(accounts, known, is_controlled)
    ours = {place: why for place, why in seen.problems.items() if place.split("/")[0] in run.policy.clouds}
    told = [f"{place} could not be asked for forgotten machines: {why}" for place, why in ours.items()]
    forgotten = [one for one in seen.found if one.is_forgotten]
    for one in forgotten:
        told.append(f"ended {len(one.machines)} machines of run {one.tag}, which has ended")
    if forgotten:
        tags, store = {one.tag for one in forgotten}, wiring.open_store()

        def may_end(machine: "Rented") -> bool:
            now = wiring.runs_by_tag(store).get(machine.run)
            return machine.run in tags and now is not None and now.state in ENDED and not is_controlled(now)

        left, _ = end_all(accounts, tags, may_end, wiring.wall_clock(), PATIENCE_S)
        told += [f"{machine.id} in {machine.place} is still listed; it is asked again" for machine in left]
    for one in seen.found:
        if not one.is_forgotten and not one.is_controlled:
            told.append(
                f"{len(one.machines)} machines of run {one.tag} ({one.fate}) bill on; "
                "`hexcloud down --all-runs` ends machines of every run of this computer, with --unknown-too of others"
            )
    return told


def refresh_prices(clouds: tuple[str, ...]) -> list[str]:
    """Read live prices of these clouds and keep what is believed; return what went wrong. Never raises for that."""
    from hexcloud import wiring
    from hexcloud.adapters.markets.sources import LIVE_CLOUDS, PriceQuestion
    from hexcloud.domain.errors import HexcloudError

    asked = tuple(cloud for cloud in clouds or LIVE_CLOUDS if cloud in LIVE_CLOUDS)
    try:
        return [report.problem for report in wiring.refresh_prices(PriceQuestion(clouds=asked)) if report.problem]
    except HexcloudError as error:
        return [f"live prices were not read: {error}"]


def refresh_first(spec: "RunSpec") -> None:
    """Read live prices before a real run is planned: the bundled ones may be months old. Raises ConfigError."""
    from hexcloud import wiring

    if not spec.is_real or spec.refresh is None:
        return
    began, clouds = time.monotonic(), wiring.rented_clouds(spec, spec.cloud)
    say(f"reading live prices of {', '.join(clouds)}")
    problems = refresh_prices(clouds)
    for problem in problems[:5]:
        say(problem)
    say(f"read in {time.monotonic() - began:.0f} s, {len(problems)} regions gave no answer")
