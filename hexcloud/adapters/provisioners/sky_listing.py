"""SkyListing: which machines of a run exist, by the clouds' own word, wherever they may be."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from hexcloud.adapters.clouds.machines import EVERYWHERE, Answer, Machine, Machines
from hexcloud.adapters.provisioners.naming import RUN, node_ids, run_label
from hexcloud.adapters.provisioners.sky_records import SkyRecord, SkyRecords
from hexcloud.domain.errors import PartListError, ProvisionError
from hexcloud.domain.fleet import Billed, NodeId, RunId

SWEEP_S = 300.0
"""Between two looks into every region; those with machines of ours are looked into each time."""
SWEEP_AGAIN_S = 60.0
"""The same after a look in which a region gave no answer."""


@dataclass
class SkyListing:
    """Lists by tag. Of a region of ours that does not answer nothing is known, and that is said."""

    records: SkyRecords
    machines: Mapping[str, Machines]
    now_s: Callable[[], float]
    """Of a clock that is never set."""
    _sweep_at_s: dict[str, float] = field(default_factory=dict)
    """Cloud -> when every region is looked into next."""
    _ended_at_s: dict[str, float] = field(default_factory=dict)
    """Cluster -> when this process first saw that it had ended."""
    _strays: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Cloud -> regions in which a sweep found machines that no record knows."""
    billed: tuple[Billed, ...] = ()
    """What the last list says of the machines' bills."""

    def nodes(self, run_id: RunId) -> tuple[NodeId, ...]:
        """Return the nodes that exist, and those that may yet: their launch was broken off, and its end not confirmed.

        Raises PartListError with the same nodes when a region of ours gives no answer.
        """
        records = self.records.all()
        broken_off = (one for one in records if one.is_ending and not (one.is_ended or one.is_started))
        found = {node for one in broken_off for node in one.node_ids}
        bills, silent = list[Billed](), dict[str, ProvisionError]()
        for cloud in self.machines:
            answer = self._answer(cloud, run_id, records)
            bills += [bill for machine in answer.machines for bill in _bills(run_id, machine)]
            found |= {node for machine in answer.machines if machine.exists for node in node_ids(run_id, machine.tags)}
            silent |= {f"{cloud}/{region}": problem for region, problem in answer.problems.items()}
        self.billed = tuple(bills)
        if silent:
            raise PartListError(tuple(sorted(found)), silent)
        return tuple(sorted(found))

    def machine(self, run_id: RunId, node_id: NodeId) -> Machine | None:
        """Return the machine of a node, looked for everywhere; None if none is its own.

        Raises what a region without an answer said, if no other has the machine.
        """
        answers = [account.look({RUN: run_label(run_id)}) for account in self.machines.values()]
        for machine in (one for answer in answers for one in answer.machines if one.exists):
            if node_id in node_ids(run_id, machine.tags):
                return machine
        for answer in answers:
            answer.whole()
        return None

    def _answer(self, cloud: str, run_id: RunId, records: tuple[SkyRecord, ...]) -> Answer:
        """Return what our regions say, and what is found elsewhere when it is time to look into every region."""
        tags, ours, now_s = {RUN: run_label(run_id)}, self._regions(cloud, records), self.now_s()
        if now_s >= self._sweep_at_s.get(cloud, now_s):
            answer = self.machines[cloud].look(tags)
            self._sweep_at_s[cloud] = now_s + (SWEEP_AGAIN_S if answer.problems else SWEEP_S)
            silent = {region: why for region, why in answer.problems.items() if region in ours}
            before = self._strays[cloud]
            if EVERYWHERE not in answer.problems:
                self._strays[cloud] = {one.region for one in answer.machines if one.exists}
                self._strays[cloud] |= set(silent) & before
                return Answer(answer.machines, silent)
        return self.machines[cloud].look(tags, sorted(ours)) if ours else Answer((), {})

    def _regions(self, cloud: str, records: tuple[SkyRecord, ...]) -> set[str]:
        """Return where machines may be: of an ended cluster for a while yet, since a cloud may list one late."""
        now_s = self.now_s()
        for one in records:
            if one.is_ended:
                self._ended_at_s.setdefault(one.cluster, now_s)
            else:
                self._ended_at_s.pop(one.cluster, None)
        recent = (one for one in records if now_s - self._ended_at_s.get(one.cluster, now_s) < SWEEP_S)
        return {one.region for one in recent if one.cloud == cloud} | self._strays[cloud]


def _bills(run_id: RunId, machine: Machine) -> Iterator[Billed]:
    if machine.began_s is not None:
        for node in node_ids(run_id, machine.tags):
            yield Billed(node_id=node, from_s=machine.began_s, to_s=machine.ended_s)
