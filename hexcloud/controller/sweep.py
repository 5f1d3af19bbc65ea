"""Sweep: machines that carry our tags, whoever's they are, by the word of the clouds themselves."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hexcloud.domain.errors import ProvisionError
from hexcloud.domain.fleet import Rented
from hexcloud.domain.run import RunRecord, RunState
from hexcloud.ports import Clock, Roll

ENDED = frozenset({RunState.DONE, RunState.FAILED})
ASK_S = 5.0
"""Between two looks at whether machines have ended."""


@dataclass(frozen=True)
class Found:
    """The machines of one run."""

    tag: str
    """The run's name on its machines."""
    run: RunRecord | None
    """None: no run that is known here; perhaps another computer's."""
    is_controlled: bool
    machines: tuple[Rented, ...]

    @property
    def is_forgotten(self) -> bool:
        """Did the run end, so that nobody will ever end these?"""
        return self.run is not None and self.run.state in ENDED and not self.is_controlled

    @property
    def fate(self) -> str:
        """Who looks after them."""
        if self.run is None:
            return "unknown here"
        return f"{self.run.state.value}, {'controlled' if self.is_controlled else 'nobody controls it'}"


@dataclass(frozen=True)
class Survey:
    """All machines of all accounts that answered."""

    found: tuple[Found, ...]
    problems: tuple[str, ...]
    """Why an account could not be asked."""


def survey(rolls: Iterable[Roll], runs: Mapping[str, RunRecord], is_controlled: Callable[[RunRecord], bool]) -> Survey:
    """Ask every account for machines with our tags. `runs`: every known run by its name on machines."""
    by_tag: defaultdict[str, list[Rented]] = defaultdict(list)
    problems = []
    for roll in rolls:
        try:
            for machine in roll.machines():
                by_tag[machine.run].append(machine)
        except ProvisionError as error:
            problems.append(f"{roll.name}: {error}")
    found = []
    for tag, machines in sorted(by_tag.items()):
        run = runs.get(tag)
        found.append(Found(tag, run, run is not None and is_controlled(run), tuple(machines)))
    return Survey(tuple(found), tuple(problems))


def end_all(
    rolls: Iterable[Roll], tags: frozenset[str], clock: Clock, patience_s: float
) -> tuple[tuple[Rented, ...], tuple[str, ...]]:
    """End the machines of these runs, all at once, and wait until the clouds no longer list them.

    Returns what is left after `patience_s` wall seconds, and what refused. What refuses is asked again until then.
    """
    give_up_s = clock.wall_s() + patience_s
    while True:
        left: list[Rented] = []
        problems: list[str] = []
        for roll in rolls:
            try:
                here = tuple(machine for machine in roll.machines() if machine.run in tags)
                left += here
                if here:
                    roll.end(here)
            except ProvisionError as error:
                problems.append(f"{roll.name}: {error}")
        if (not left and not problems) or clock.wall_s() >= give_up_s:
            return tuple(left), tuple(problems)
        clock.sleep(ASK_S)
