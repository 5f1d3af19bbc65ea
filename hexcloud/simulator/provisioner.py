"""SimProvisioner: rents the simulated cloud's machines, with its capacity and its faults."""

import hashlib

from hexcloud.domain.command import Command, NodeSpec
from hexcloud.domain.errors import CapacityError, NotYetError, PartListError, UnknownProvisionError
from hexcloud.domain.fleet import Node, NodeId, RunId
from hexcloud.domain.offer import Offer
from hexcloud.simulator.cloud import SimCloud
from hexcloud.simulator.machine import Machine


class SimProvisioner:
    """Implements ports.Provisioner. Faults named `launch`, `terminate` and `list` strike its calls."""

    def __init__(self, cloud: SimCloud) -> None:
        self._cloud = cloud
        self.is_elastic = cloud.habits.is_elastic

    def launch(self, nodes: tuple[Node, ...], offer: Offer, commands: tuple[Command, ...]) -> None:
        """Start machines, all or none. Ids that were ever launched start nothing; those on the way raise NotYetError.

        Raises CapacityError, and planned faults.
        """
        cloud = self._cloud
        cloud.advance()
        with cloud.faults.around("launch"):
            self._require_answer(offer)
            if not any(node.id in cloud.machines for node in nodes):
                self._begin(offer, commands)
            launched_s = max(cloud.machines[node.id].launched_s for node in nodes if node.id in cloud.machines)
            self._require_up(cloud.clock.now_s() - launched_s, offer)

    def _begin(self, offer: Offer, commands: tuple[Command, ...]) -> None:
        cloud, now_s = self._cloud, self._cloud.clock.now_s()
        taken = sum(1 for machine in cloud.running() if machine.offer.id == offer.id)
        if taken + len(commands) > cloud.capacity.limit(offer.id, now_s):
            raise CapacityError("no capacity now", offer.id, "INSUFFICIENT_CAPACITY")
        machines = [self._machine(offer, command, now_s) for command in commands]
        cloud.machines |= {machine.id: machine for machine in machines}

    def _require_up(self, waited_s: float, offer: Offer) -> None:
        habits = self._cloud.habits
        if waited_s < habits.provision_s:
            raise NotYetError("waiting for the machine", offer.id, phase="provision")
        if waited_s < habits.provision_s + habits.setup_s:
            raise NotYetError("setting the machine up", offer.id, phase="setup")

    def terminate(self, node_id: NodeId) -> None:
        """Begin the end of a machine; unknown and ended ids are fine."""
        cloud = self._cloud
        cloud.advance()
        with cloud.faults.around("terminate"):
            machine = cloud.machines.get(node_id)
            if machine:
                self._require_answer(machine.offer)
            if machine and machine.exists and machine.ends_s is None:
                machine.ends_s = cloud.clock.now_s() + cloud.habits.stop_s

    def list_nodes(self, run_id: RunId) -> tuple[NodeId, ...]:
        """Return what exists and bills, but for machines so new that the list does not have them.

        Raises PartListError during an outage.
        """
        cloud = self._cloud
        cloud.advance()
        with cloud.faults.around("list"):
            visible_s = cloud.clock.now_s() - cloud.habits.visible_after_s
            silent = cloud.silent()
            listed = tuple(
                machine.id
                for machine in cloud.running()
                if machine.spec.run_id == run_id
                and machine.launched_s <= visible_s
                and _region(machine.offer) not in silent
            )
        if silent:
            raise PartListError(listed, {place: UnknownProvisionError("no answer") for place in sorted(silent)})
        return listed

    def _require_answer(self, offer: Offer) -> None:
        if _region(offer) in self._cloud.silent():
            raise UnknownProvisionError(f"{_region(offer)} gives no answer", offer.id, "outage")

    def _machine(self, offer: Offer, command: Command, now_s: float) -> Machine:
        spec = NodeSpec.model_validate_json(command.files["node.json"])
        habits = self._cloud.habits
        boots_s = now_s + habits.provision_s + habits.setup_s + habits.boot_s
        real = self._cloud.engines.get(offer.gpu)
        return Machine(
            offer=offer,
            spec=spec,
            token=hashlib.sha256(command.secrets["HEXCLOUD_NODE_TOKEN"].encode()).hexdigest(),
            is_head="HEXCLOUD_CONTROLLER_TOKEN" in command.secrets,
            launched_s=now_s,
            boots_s=boots_s,
            run_until_wall_s=self._cloud.clock.to_wall(boots_s) + spec.spend_lease_s,
            engine_samples_per_wall_s=None if real is None else real * self._cloud.clock.scale,
        )


def _region(offer: Offer) -> str:
    return f"{offer.cloud}/{offer.region}"
