"""SkyPilotProvisioner: machines rented through SkyPilot, one cluster for each rollout node or gang.

Pool, zone and tenure are fixed by the plan, so SkyPilot has nothing to fail over to and every refusal reaches us.
What is asked is on disk first; what SkyPilot does is looked at, never waited for; what exists is the cloud's own word.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import NamedTuple

from hexcloud.adapters.clouds.machines import Machines
from hexcloud.adapters.provisioners.naming import CLUSTER, node_ids
from hexcloud.adapters.provisioners.sky_calls import SkyCalls
from hexcloud.adapters.provisioners.sky_end import SkyEnd
from hexcloud.adapters.provisioners.sky_launch import SkyLaunch
from hexcloud.adapters.provisioners.sky_listing import SkyListing
from hexcloud.adapters.provisioners.sky_patience import begin
from hexcloud.adapters.provisioners.sky_records import PROVISION, SkyRecord, SkyRecords
from hexcloud.adapters.provisioners.sky_task import Order
from hexcloud.adapters.provisioners.wheel import make_wheel
from hexcloud.domain.command import Command
from hexcloud.domain.errors import HexcloudError, NotYetError, UnknownProvisionError
from hexcloud.domain.fleet import Billed, Node, NodeId, RunId
from hexcloud.domain.offer import Offer

MAX_AT_ONCE = 16
"""Launches that are worked on at the same time, and as many ends: launches that hang hold no end up."""
CLOSE_S = 30.0
LAUNCH, END = "launch", "end"
STUCK_S = 120.0
"""A step that has taken so long is not waited for any more; one takes seconds."""
WAIT_S = 0.1
"""How long a call waits for SkyPilot's answer before it says `not yet`."""


class SkyPilotProvisioner:
    """Implements ports.Provisioner and ports.Biller for one run.

    One process at a time may use a run's folder; its threads all may.
    """

    is_elastic = False
    """A gang is one cluster: its machines begin and end together, and only they reach each other."""

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
        self._room = {what: BoundedSemaphore(MAX_AT_ONCE) for what in (LAUNCH, END)}
        self._steps: dict[str, _Step] = {}
        self._wheel: Path | None = None
        self._wheel_lock = Lock()

    def launch(self, nodes: tuple[Node, ...], offer: Offer, commands: tuple[Command, ...]) -> None:
        """See `ports.Provisioner.launch`. Begins or goes on, and says how far it is."""
        order = Order(nodes, offer, commands)
        with _refusing(offer.id):
            record = self._records.read(order.cluster)
            if record is not None and (record.is_started or record.is_ending):
                return
            if offer.cloud not in self._machines:
                said = f"{offer.id}: hexcloud cannot list machines of {offer.cloud} by itself, so it rents none there"
                raise UnknownProvisionError(said, offer.id, "cloud")
            if not self._is_through(order.cluster, LAUNCH, lambda: self._launch.go_on(order)):
                record = self._records.read(order.cluster)
                raise NotYetError("asked of SkyPilot", offer.id, phase=record.phase if record else PROVISION)

    def terminate(self, node_id: NodeId) -> None:
        """See `ports.Provisioner.terminate`. Ends the node's cluster, and with it its whole gang."""
        with _refusing(""):
            record = self._records.of(node_id)
            if record is None:
                self._require_through(node_id, lambda: self._find(node_id))
                record = self._records.of(node_id)
            if record is None or (record.is_ended and not self._end.standing(record)):
                return
            self._require_through(record.cluster, self._ending(record))

    def list_nodes(self, run_id: RunId) -> tuple[NodeId, ...]:
        """See `ports.Provisioner.list_nodes`. What was broken off on its way is among them until its end is sure."""
        with _refusing(""):
            return self._listing.nodes(run_id)

    def billed(self) -> tuple[Billed, ...]:
        """See `ports.Biller`."""
        return self._listing.billed

    def close(self) -> None:
        """Wait for what is asked just now, as long as usual answers take; nothing else is begun."""
        futures = [step.future for step in self._steps.values()]
        wait([future for future in futures if not future.cancel()], CLOSE_S)

    def _ending(self, record: SkyRecord) -> Callable[[], None]:
        """Note that a cluster is to end, and return the step towards it: by the cloud when nothing can be noted."""
        again = {"is_ended": False, "down": "", "down_wall_s": 0.0} if record.is_ended else {}
        try:
            self._records.change(record.cluster, is_ending=True, **again)
        except (OSError, KeyError) as error:
            return partial(self._end_unnoted, record, error)
        return lambda: self._end.go_on(record.cluster)

    def _end_unnoted(self, record: SkyRecord, cause: Exception) -> None:
        """A full disk keeps no machine alive."""
        self._end.by_cloud(record)
        raise cause

    def _require_through(self, key: str, step: Callable[[], None]) -> None:
        if not self._is_through(key, END, step):
            raise NotYetError(f"the end of {key} was asked for")

    def _is_through(self, key: str, what: str, step: Callable[[], None]) -> bool:
        """Take one step for a cluster, beside the caller; return False when it takes longer than the caller may wait.

        Its error is raised, by this call or a later one. There is one step at a time for each cluster; but a launch in
        which SkyPilot is stuck keeps no machine alive: its end goes past it.
        """
        running = self._steps.get(key)
        if running is not None and running.what != what and not running.future.done() and not running.is_stuck():
            return False
        if running is None or running.what != what:
            running = self._steps[key] = _Step(what, begin(step, self._room[what]), time.monotonic())
        wait((running.future,), self._wait_s)
        if not running.future.done():
            return False
        del self._steps[key]
        running.future.result()
        return True

    def _find(self, node_id: NodeId) -> None:
        """Make a record of a cluster that only the cloud remembers. A machine whose tag of it is lost ends at once."""
        machine = self._listing.machine(self._run_id, node_id)
        if machine is None:
            return
        cluster = machine.tags.get(CLUSTER)
        if not cluster:
            self._machines[machine.cloud].end([machine])
            return
        ids = node_ids(self._run_id, machine.tags)
        found = SkyRecord(cluster=cluster, node_ids=ids, offer_id="", cloud=machine.cloud, region=machine.region)
        try:
            self._records.save(found)
        except OSError:
            self._end.by_cloud(found)
            raise

    def _make_wheel(self) -> Path:
        """Make the wheel once: it is what runs now that machines must get."""
        with self._wheel_lock:
            if self._wheel is None:
                self._wheel = make_wheel(self._folder / "wheel").parent
            return self._wheel


@contextmanager
def _refusing(offer_id: str) -> Iterator[None]:
    """Turn whatever is broken on this computer into a refusal: a full disk must not end a controller."""
    try:
        yield
    except HexcloudError:
        raise
    except Exception as error:
        name = type(error).__name__
        raise UnknownProvisionError(f"on this computer: {name}: {error}", offer_id, name) from error


class _Step(NamedTuple):
    what: str
    future: "Future[None]"
    since_s: float

    def is_stuck(self) -> bool:
        return time.monotonic() - self.since_s > STUCK_S
