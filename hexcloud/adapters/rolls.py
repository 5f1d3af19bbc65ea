"""Rolls: every machine with our tags in one place, of whatever run: an account of a cloud, or this computer."""

from collections.abc import Iterable
from contextlib import suppress

from hexcloud.adapters.clouds.machines import EVERYWHERE, Machine, Machines
from hexcloud.adapters.provisioners.naming import RUN, node_ids, run_label
from hexcloud.domain.errors import NotYetError, ProvisionError
from hexcloud.domain.fleet import THIS_COMPUTER, Look, NodeId, Rented, RunId
from hexcloud.ports import Provisioner

ANY = ""


class AccountRoll:
    """Implements ports.Roll over one account of a cloud."""

    def __init__(self, name: str, machines: Machines) -> None:
        self.name = name
        self._machines = machines

    def look(self) -> Look:
        """Return what the cloud lists in all its regions, and which of them gave no answer."""
        answer = self._machines.look({RUN: ANY})
        named = {
            self.name if region == EVERYWHERE else f"{self.name}/{region}": str(problem)
            for region, problem in answer.problems.items()
        }
        return Look(machines=tuple(_rented(machine) for machine in answer.machines if machine.exists), problems=named)

    def end(self, machines: tuple[Rented, ...]) -> None:
        """End them; those that have ended are fine. Raises ProvisionError."""
        ids = {(machine.place, machine.id) for machine in machines}
        regions = sorted({machine.place.split("/")[1] for machine in machines})
        listed = self._machines.look({RUN: ANY}, regions).machines
        self._machines.end([one for one in listed if one.exists and (_place(one), one.id) in ids])


class ComputerRoll:
    """Implements ports.Roll over the processes of local runs."""

    name = THIS_COMPUTER

    def __init__(self, runs: Iterable[tuple[RunId, Provisioner]]) -> None:
        """`runs`: every local run and who started its nodes."""
        self._runs = tuple(runs)

    def look(self) -> Look:
        """Return the nodes that live."""
        try:
            machines = tuple(
                Rented(run=run_label(run_id), id=node_id, place=self.name, instance_type="process")
                for run_id, provisioner in self._runs
                for node_id in provisioner.list_nodes(run_id)
            )
        except ProvisionError as error:
            return Look(problems={self.name: str(error)})
        return Look(machines=machines)

    def end(self, machines: tuple[Rented, ...]) -> None:
        """End them; called again it ends them by force. Raises ProvisionError."""
        ids = {machine.id for machine in machines}
        for run_id, provisioner in self._runs:
            for node_id in ids & set(provisioner.list_nodes(run_id)):
                with suppress(NotYetError):  # asked again at the next call
                    provisioner.terminate(NodeId(node_id))


def _rented(machine: Machine) -> Rented:
    return Rented(
        run=machine.tags.get(RUN, ANY),
        id=machine.id,
        place=_place(machine),
        instance_type=machine.instance_type,
        nodes=tuple(node.removeprefix(".") for node in node_ids(RunId(""), machine.tags)),
    )


def _place(machine: Machine) -> str:
    return f"{machine.cloud}/{machine.region}/{machine.zone or '-'}"
