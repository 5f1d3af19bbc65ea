"""SkyListing: which machines of a run exist, by the clouds' own word, wherever they may be."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from hexcloud.adapters.clouds.machines import Machine, Machines
from hexcloud.adapters.provisioners.naming import RUN, node_ids, run_label
from hexcloud.adapters.provisioners.sky_records import SkyRecord, SkyRecords
from hexcloud.domain.errors import ProvisionError
from hexcloud.domain.fleet import Billed, NodeId, RunId

SWEEP_S = 300.0
"""Between two looks into every region; those that were ever asked for machines are looked into each time."""


@dataclass
class SkyListing:
    """Lists by tag. Half a list is no list: a cloud or region of ours that does not answer fails the call."""

    records: SkyRecords
    machines: Mapping[str, Machines]
    now_s: Callable[[], float]
    """Of a clock that is never set."""
    _swept_at_s: dict[str, float] = field(default_factory=dict)
    _strays: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Cloud -> regions in which a sweep found machines that no record knows."""
    billed: tuple[Billed, ...] = ()
    """What the last list says of the machines' bills."""

    def nodes(self, run_id: RunId) -> tuple[NodeId, ...]:
        """Return the nodes that exist, and those whose end was asked for and is not confirmed."""
        records = self.records.all()
        self.billed = ()
        machines = tuple(self._all(run_id, records))
        self.billed = tuple(bill for machine in machines for bill in _bills(run_id, machine))
        found = {node for machine in machines if machine.exists for node in node_ids(run_id, machine.tags)}
        ending = {node for one in records if one.is_ending and not one.is_ended for node in one.node_ids}
        return tuple(sorted(found | ending))

    def machine(self, run_id: RunId, node_id: NodeId) -> Machine | None:
        """Return the machine of a node, looked for everywhere; None if none is its own."""
        for account in self.machines.values():
            for machine in account.listed({RUN: run_label(run_id)}):
                if node_id in node_ids(run_id, machine.tags):
                    return machine
        return None

    def _all(self, run_id: RunId, records: tuple[SkyRecord, ...]) -> Iterator[Machine]:
        for cloud, account in self.machines.items():
            regions = {record.region for record in records if record.cloud == cloud} | self._strays[cloud]
            swept = self._sweep(cloud, run_id)
            if swept is not None:
                self._strays[cloud] = {machine.region for machine in swept} | regions
                yield from swept
            elif regions:
                yield from account.known({RUN: run_label(run_id)}, sorted(regions))

    def _sweep(self, cloud: str, run_id: RunId) -> tuple[Machine, ...] | None:
        """Look into all regions if it is time; None if not, or if one of them does not answer: then ours are asked."""
        at_s = self._swept_at_s.get(cloud)
        if at_s is not None and self.now_s() - at_s < SWEEP_S:
            return None
        self._swept_at_s[cloud] = self.now_s()
        try:
            return self.machines[cloud].known({RUN: run_label(run_id)})
        except ProvisionError:
            return None


def _bills(run_id: RunId, machine: Machine) -> Iterator[Billed]:
    if machine.began_s is not None:
        for node in node_ids(run_id, machine.tags):
            yield Billed(node_id=node, from_s=machine.began_s, to_s=machine.ended_s)
