"""SkyPilotProvisioner: machines rented through SkyPilot, one cluster for each rollout node or gang.

Pool, zone and tenure are fixed by the plan, so SkyPilot has nothing to fail over to and every refusal reaches us.
What is asked is on disk first; what SkyPilot does is looked at, never waited for; what exists is the cloud's own word.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from hexcloud.adapters.clouds.machines import Machines
from hexcloud.adapters.provisioners.naming import CLUSTER, node_ids
from hexcloud.adapters.provisioners.sky_calls import SkyCalls
from hexcloud.adapters.provisioners.sky_end import SkyEnd
from hexcloud.adapters.provisioners.sky_launch import SkyLaunch
from hexcloud.adapters.provisioners.sky_listing import SkyListing
from hexcloud.adapters.provisioners.sky_records import PROVISION, SkyRecord, SkyRecords
from hexcloud.adapters.provisioners.sky_task import Order
from hexcloud.adapters.provisioners.wheel import make_wheel
from hexcloud.domain.command import Command
from hexcloud.domain.errors import NotYetError, UnknownProvisionError
from hexcloud.domain.fleet import Billed, Node, NodeId, RunId
from hexcloud.domain.offer import Offer

MAX_AT_ONCE = 16
"""Launches and ends that are worked on at the same time; SkyPilot queues what its server has no room for."""
STUCK_S = 120.0
"""A step that has taken so long is not waited for any more; one takes seconds."""
WAIT_S = 0.1
"""How long a call waits for SkyPilot's answer before it says `not yet`."""


class SkyPilotProvisioner:
    """Implements ports.Provisioner and ports.Biller for one run.

    One process at a time may use a run's folder; its threads all may.
    """

    def __init__(
        self, run_id: RunId, run_dir: Path, sky: SkyCalls, machines: Mapping[str, Machines], wait_s: float = WAIT_S
    ) -> None:
        """`machines`: the account on each cloud that the run may rent on, by the cloud's name."""
        self._run_id = run_id
        self._folder = run_dir / "sky"
        self._records = SkyRecords(self._folder)
        self._machines = machines
        self._wait_s = wait_s
        self._end = SkyEnd(sky, self._records, machines, time.time)
        self._launch = SkyLaunch(self._folder, sky, self._records, machines, self._end, self._make_wheel)
        self._listing = SkyListing(self._records, machines, time.monotonic)
        self._threads = ThreadPoolExecutor(MAX_AT_ONCE, thread_name_prefix="skypilot")
        self._steps: dict[str, _Step] = {}
        self._wheel: Path | None = None
        self._wheel_lock = Lock()

    def launch(self, nodes: tuple[Node, ...], offer: Offer, commands: tuple[Command, ...]) -> None:
        """See `ports.Provisioner.launch`. Begins or goes on, and says how far it is."""
        order = Order(nodes, offer, commands)
        record = self._records.read(order.cluster)
        if record is not None and (record.is_started or record.is_ending):
            return
        if offer.cloud not in self._machines:
            said = f"{offer.id}: hexcloud cannot list machines of {offer.cloud} by itself, so it rents none there"
            raise UnknownProvisionError(said, offer.id, "cloud")
        if not self._is_through(order.cluster, "launch", lambda: self._launch.go_on(order)):
            record = self._records.read(order.cluster)
            raise NotYetError("asked of SkyPilot", offer.id, phase=record.phase if record else PROVISION)

    def terminate(self, node_id: NodeId) -> None:
        """See `ports.Provisioner.terminate`. Ends the node's cluster, and with it its whole gang."""
        record = self._records.of(node_id) or self._found(node_id)
        if record is None or (record.is_ended and not self._end.standing(record)):
            return
        cluster = record.cluster
        again = {"is_ended": False, "down": "", "down_wall_s": 0.0} if record.is_ended else {}
        self._records.change(cluster, is_ending=True, **again)
        if not self._is_through(cluster, "end", lambda: self._end.go_on(cluster)):
            raise NotYetError(f"the end of {cluster} was asked for", record.offer_id)

    def list_nodes(self, run_id: RunId) -> tuple[NodeId, ...]:
        """See `ports.Provisioner.list_nodes`. Nodes whose end is not confirmed are among them."""
        return self._listing.nodes(run_id)

    def billed(self) -> tuple[Billed, ...]:
        """See `ports.Biller`."""
        return self._listing.billed

    def close(self) -> None:
        """Wait for what is asked just now; nothing else is begun."""
        self._threads.shutdown(cancel_futures=True)

    def _is_through(self, cluster: str, what: str, step: Callable[[], None]) -> bool:
        """Take one step for a cluster, beside the caller; return False when it takes longer than the caller may wait.

        Its error is raised, by this call or a later one. There is one step at a time for each cluster; but a launch in
        which SkyPilot is stuck keeps no machine alive: its end goes past it.
        """
        running = self._steps.get(cluster)
        if running is not None and running.what != what and not running.future.done() and not running.is_stuck():
            return False
        if running is None or running.what != what:
            running = self._steps[cluster] = _Step(what, self._threads.submit(step), time.monotonic())
        wait((running.future,), self._wait_s)
        if not running.future.done():
            return False
        del self._steps[cluster]
        running.future.result()
        return True

    def _found(self, node_id: NodeId) -> SkyRecord | None:
        """Make a record of a cluster that only the cloud remembers. A machine whose tag of it is lost ends at once."""
        machine = self._listing.machine(self._run_id, node_id)
        if machine is None:
            return None
        cluster = machine.tags.get(CLUSTER)
        if not cluster:
            self._machines[machine.cloud].end([machine])
            return None
        ids = node_ids(self._run_id, machine.tags)
        found = SkyRecord(cluster=cluster, node_ids=ids, offer_id="", cloud=machine.cloud, region=machine.region)
        return self._records.save(found)

    def _make_wheel(self) -> Path:
        """Make the wheel once: it is what runs now that machines must get."""
        with self._wheel_lock:
            if self._wheel is None:
                self._wheel = make_wheel(self._folder / "wheel").parent
            return self._wheel


class _Step(NamedTuple):
    what: str
    future: "Future[None]"
    since_s: float

    def is_stuck(self) -> bool:
        return time.monotonic() - self.since_s > STUCK_S
