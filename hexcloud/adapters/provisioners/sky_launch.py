"""SkyLaunch: how a cluster comes up, one step at a time: asked, provisioned, told apart, set up, running.

Invariant: a cluster is asked for once. A process that died after the call and before it noted the answer finds it by
the cluster's name, and a refusal is said only when nothing half-made is left.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hexcloud.adapters.clouds.machines import CLOSED, Machine, Machines
from hexcloud.adapters.provisioners.naming import own_tags
from hexcloud.adapters.provisioners.sky_calls import JobState, Progress, SkyCalls, Started, TaskRefusedError
from hexcloud.adapters.provisioners.sky_end import SkyEnd
from hexcloud.adapters.provisioners.sky_errors import last_line, refusal
from hexcloud.adapters.provisioners.sky_records import SETUP, Refusal, SkyRecord, SkyRecords
from hexcloud.adapters.provisioners.sky_task import Folders, Order, sky_task, write_files
from hexcloud.adapters.provisioners.sky_template import Task
from hexcloud.domain import errors
from hexcloud.domain.errors import (
    CapacityError,
    ConfigError,
    NotYetError,
    ProvisionError,
    QuotaError,
    UnknownProvisionError,
)
from hexcloud.domain.offer import Tenure

LOST_ON_THE_WAY = "lost_before_it_ran"
"""Our code of a machine that vanished while its cluster was set up."""
_OF_ONE_TRY = ("phase", "request", "job", "refusal", "down", "down_wall_s")
"""Fields of a record that begin anew with another try."""
SETUP_FAILED, PROGRAM_FAILED = "setup_failed", "program_failed"


@dataclass(frozen=True)
class SkyLaunch:
    """Launches clusters, step by step."""

    folder: Path
    sky: SkyCalls
    records: SkyRecords
    machines: Mapping[str, Machines]
    end: SkyEnd
    wheel: Callable[[], Path]
    """Makes the wheel and returns the folder that holds it alone."""

    def go_on(self, order: Order) -> None:
        """Take the next step. Returns once the program runs; until then raises NotYetError, or the refusal."""
        record = self.records.read(order.cluster) or self.records.save(_intent(order))
        if record.is_started or record.is_ending:
            return
        if record.refusal is None and not record.request:
            record = self._ask(order, self.records.change(record.cluster, is_ended=False))
        if record.refusal is None:
            record = self._look(order, record)
        if record.refusal is not None:
            self._release(record, record.refusal)
        if not record.is_started:
            raise NotYetError(f"{record.cluster}: {record.phase}", record.offer_id, phase=record.phase)

    def _ask(self, order: Order, record: SkyRecord) -> SkyRecord:
        """Find the launch that was asked for, or ask for it."""
        asked = next((one for one in self.sky.launches(record.cluster) if one not in record.spent), "")
        if asked:
            return self.records.change(record.cluster, request=asked)
        if self.sky.has(record.cluster) and (jobs := self.sky.jobs(record.cluster)):
            # The server has forgotten its requests, but not the cluster: another launch would run a second program.
            return self.records.change(record.cluster, job=jobs[0], phase=SETUP)
        try:
            task = self._task(order)
        except UnknownProvisionError as error:
            if error.code not in CLOSED:
                raise
            return self._refuse(record, error)
        try:
            request = self.sky.launch(task, record.cluster)
        except TaskRefusedError as refused:
            return self._refuse(record, refusal(refused.error, "", order.offer))
        return self.records.change(record.cluster, request=request)

    def _task(self, order: Order) -> Task:
        """Return the task, with its files in place. Raises a ProvisionError: so far nothing was asked for."""
        offer, nodes = order.offer, self.folder / order.cluster
        zone = self.machines[offer.cloud].zone_name(offer.region, offer.zone) if offer.zone else None
        try:
            write_files(nodes, order.commands)
            return sky_task(order, zone, Folders(wheel=self.wheel(), node=nodes))
        except (ConfigError, OSError, ValueError) as error:
            raise UnknownProvisionError(f"{offer.id}: {error}", offer.id, type(error).__name__) from error

    def _look(self, order: Order, record: SkyRecord) -> SkyRecord:
        """Ask how far it is."""
        if record.job is not None:
            return self._look_at_job(order, record)
        match self.sky.progress(record.request):
            case Progress.WAITING:
                return record
            case Progress.FORGOTTEN:
                return self.records.change(record.cluster, request="")
            case Progress.FAILED:
                error, log = self.sky.failure(record.request)
                return self._refuse(record, refusal(error, log, order.offer))
            case Progress.DONE:
                return self._tell_apart(order, record, self.sky.started(record.request))

    def _tell_apart(self, order: Order, record: SkyRecord, started: Started) -> SkyRecord:
        """Give every machine of a gang its own tags."""
        left = self.end.standing(record)
        if len(left) < len(order.nodes):
            return self._refuse(record, _lost(order, left))
        if len(order.nodes) > 1:
            ranks = {address: rank for rank, address in enumerate(started.addresses)}
            for machine in left:
                if machine.private_ip in ranks:
                    self.machines[record.cloud].tag(machine, own_tags(order.nodes[ranks[machine.private_ip]]))
        return self.records.change(record.cluster, job=started.job, phase=SETUP)

    def _look_at_job(self, order: Order, record: SkyRecord) -> SkyRecord:
        state = self.sky.job(record.cluster, record.job)
        if state in (JobState.RUNNING, JobState.ENDED):
            return self.records.change(record.cluster, is_started=True)
        if state in (JobState.SETUP_FAILED, JobState.FAILED):
            code = SETUP_FAILED if state is JobState.SETUP_FAILED else PROGRAM_FAILED
            words = last_line(self.sky.last_words(record.cluster, record.job)) or "it left no word"
            said = f"{order.offer.id}: {code.replace('_', ' ')} on the machine: {words}"
            return self._refuse(record, UnknownProvisionError(said, order.offer.id, code))
        left = self.end.standing(record)
        return self._refuse(record, _lost(order, left)) if len(left) < len(order.nodes) else record

    def _refuse(self, record: SkyRecord, error: ProvisionError) -> SkyRecord:
        waiting = Refusal(kind=type(error).__name__, message=str(error), code=error.code)
        return self.records.change(record.cluster, refusal=waiting)

    def _release(self, record: SkyRecord, waiting: Refusal) -> None:
        """Raise a refusal once nothing of the launch is left; then the same cluster may be asked for again.

        A region that refused the launch as one that is not enabled, and refuses still, has nothing of it: QuotaError.
        """
        try:
            if not self.end.is_gone(record):
                return
            is_closed = False
        except UnknownProvisionError as error:
            is_closed = {error.code, waiting.code} <= CLOSED
            if not is_closed:
                raise
        begun = {name: SkyRecord.model_fields[name].default for name in _OF_ONE_TRY}
        spent = (*record.spent, *((record.request,) if record.request else ()))
        self.records.change(record.cluster, **begun, spent=spent, is_ended=is_closed)
        kind: type[ProvisionError] = QuotaError if is_closed else getattr(errors, waiting.kind)
        raise kind(waiting.message, record.offer_id, waiting.code)


def _intent(order: Order) -> SkyRecord:
    return SkyRecord(
        cluster=order.cluster,
        node_ids=tuple(node.id for node in order.nodes),
        offer_id=order.offer.id,
        cloud=order.offer.cloud,
        region=order.offer.region,
    )


def _lost(order: Order, left: tuple[Machine, ...]) -> ProvisionError:
    """A spot machine that goes before it worked is a pool that has no room; any other is a riddle."""
    said = (
        f"{order.offer.id}: {len(order.nodes) - len(left)} of {len(order.nodes)} machines vanished before they worked"
    )
    kind = CapacityError if order.offer.tenure is Tenure.SPOT else UnknownProvisionError
    return kind(f"{said} ({LOST_ON_THE_WAY})", order.offer.id, LOST_ON_THE_WAY)
