"""Sweep: machines that carry our tags, whoever's they are, by the word of the clouds themselves."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
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
SILENT_S = 15.0
"""How long a place without an answer is asked again when nothing else is left to do."""


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
    """All machines of all places that answered."""

    found: tuple[Found, ...]
    problems: Mapping[str, str]
    """Place -> why it could not be asked."""


def survey(rolls: Iterable[Roll], runs: Mapping[str, RunRecord], is_controlled: Callable[[RunRecord], bool]) -> Survey:
    """Ask every account for machines with our tags. `runs`: every known run by its name on machines."""
    by_tag: defaultdict[str, list[Rented]] = defaultdict(list)
    problems: dict[str, str] = {}
    for roll in rolls:
        seen = roll.look()
        problems |= seen.problems
        for machine in seen.machines:
            by_tag[machine.run].append(machine)
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
    rolls: Iterable[Roll], tags: Set[str], may_end: Callable[[Rented], bool], clock: Clock, patience_s: float
) -> tuple[tuple[Rented, ...], dict[str, str]]:
    """End the machines of the runs shown, all at once, until a second look finds none of them.

    `may_end` is asked anew before every end, for a run may go on meanwhile; what it spares is left. Returns what is
    left after `patience_s` wall seconds at most, and which place refused why or gave no answer.
    """
    began_s, was_empty = clock.wall_s(), False
    while True:
        left: list[Rented] = []
        problems: dict[str, str] = {}
        for roll in rolls:
            here, silent = _end_here(roll, tags, may_end)
            left, problems = left + list(here), problems | silent
        waited_s, is_empty = clock.wall_s() - began_s, not any(may_end(machine) for machine in left)
        is_over = is_empty and was_empty and (not problems or waited_s >= SILENT_S)
        if is_over or waited_s >= patience_s:
            return tuple(left), problems
        was_empty = is_empty
        clock.sleep(ASK_S)


def _end_here(
    roll: Roll, tags: Set[str], may_end: Callable[[Rented], bool]
) -> tuple[tuple[Rented, ...], dict[str, str]]:
    """Ask one place to end the machines of some runs; return those that it still listed, and who did not answer."""
    seen = roll.look()
    here = tuple(machine for machine in seen.machines if machine.run in tags)
    due = tuple(machine for machine in here if may_end(machine))
    try:
        if due:
            roll.end(due)
    except ProvisionError as error:
        return here, seen.problems | {roll.name: str(error)}
    return here, seen.problems
