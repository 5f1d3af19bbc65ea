"""Sweep: machines that carry our tags, whoever's they are, by the word of the clouds themselves."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hexcloud.domain.errors import ProvisionError
from hexcloud.domain.fleet import Node, NodeId, Rented
from hexcloud.domain.ledger import CostKind, LedgerEntry
from hexcloud.domain.run import RunRecord, RunState
from hexcloud.ports import Clock, Roll

ENDED = frozenset({RunState.DONE, RunState.FAILED})
SECONDS_PER_HOUR = 3600.0
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
    problems: Mapping[str, str]
    """Place -> why it could not be asked."""


def survey(rolls: Iterable[Roll], runs: Mapping[str, RunRecord], is_controlled: Callable[[RunRecord], bool]) -> Survey:
    """Ask every account for machines with our tags. `runs`: every known run by its name on machines."""
    by_tag: defaultdict[str, list[Rented]] = defaultdict(list)
    problems = {}
    for roll in rolls:
        try:
            for machine in roll.machines():
                by_tag[machine.run].append(machine)
        except ProvisionError as error:
            problems[roll.name] = str(error)
    found = []
    for tag, machines in sorted(by_tag.items()):
        run = runs.get(tag)
        found.append(Found(tag, run, run is not None and is_controlled(run), tuple(machines)))
    return Survey(tuple(found), problems)


def late_bills(
    found: Found, nodes: Iterable[Node], ledger: Iterable[LedgerEntry], at_s: float
) -> tuple[LedgerEntry, ...]:
    """Return the rent of machines that outlived their run's books, until `at_s`, run clock, at the last known price."""
    billed: dict[NodeId, float] = {}
    for entry in ledger:
        if entry.kind is CostKind.COMPUTE:
            billed[entry.node_id] = max(entry.to_s, billed.get(entry.node_id, entry.to_s))
    names = {name for machine in found.machines for name in machine.nodes}
    bills = []
    for node in nodes:
        from_s, usd_per_hour = billed.get(node.id, node.requested_at_s), node.usd_per_hour
        if f"{node.slot}.{node.attempt}" in names and usd_per_hour is not None and at_s > from_s:
            usd = usd_per_hour * (at_s - from_s) / SECONDS_PER_HOUR
            entry = LedgerEntry(
                node_id=node.id, kind=CostKind.COMPUTE, from_s=from_s, to_s=at_s, usd_per_hour=usd_per_hour, usd=usd
            )
            bills.append(entry)
    return tuple(bills)


def end_all(
    rolls: Iterable[Roll], tags: frozenset[str], clock: Clock, patience_s: float
) -> tuple[tuple[Rented, ...], dict[str, str]]:
    """End the machines of these runs, all at once, and wait until the clouds no longer list them.

    Returns what is left after `patience_s` wall seconds, and which place refused why. Until then it is asked again.
    """
    give_up_s = clock.wall_s() + patience_s
    while True:
        left: list[Rented] = []
        problems: dict[str, str] = {}
        for roll in rolls:
            try:
                left += _end_here(roll, tags)
            except ProvisionError as error:
                problems[roll.name] = str(error)
        if (not left and not problems) or clock.wall_s() >= give_up_s:
            return tuple(left), problems
        clock.sleep(ASK_S)


def _end_here(roll: Roll, tags: frozenset[str]) -> tuple[Rented, ...]:
    """Ask one place to end the machines of some runs; return those that it still listed."""
    here = tuple(machine for machine in roll.machines() if machine.run in tags)
    if here:
        roll.end(here)
    return here
