"""SkyEnd: how a cluster ends. SkyPilot is asked first; the cloud itself when it refuses, forgets or is slow."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from hexcloud.adapters.clouds.machines import Machine, Machines
from hexcloud.adapters.provisioners.naming import CLUSTER
from hexcloud.adapters.provisioners.sky_calls import Progress, SkyCalls
from hexcloud.adapters.provisioners.sky_records import SkyRecord, SkyRecords
from hexcloud.domain.errors import NotYetError, RateLimitError, UnknownProvisionError

DOWN_S = 120.0
"""Wall seconds that SkyPilot gets; it took 3 to 20 on an emulated EC2."""


@dataclass(frozen=True)
class SkyEnd:
    """Ends clusters, step by step."""

    sky: SkyCalls
    records: SkyRecords
    machines: Mapping[str, Machines]
    wall_s: Callable[[], float]

    def go_on(self, cluster: str) -> None:
        """Take the next step. Returns once the cloud confirms the end; until then raises NotYetError or a refusal."""
        record = self.records.read(cluster)
        if record is None or record.is_ended:
            return
        if not self.is_gone(record):
            raise NotYetError(f"{cluster} is on its way to end", record.offer_id)
        self.records.change(cluster, is_ended=True)

    def is_gone(self, record: SkyRecord) -> bool:
        """Ask for the end where it is due, and return whether the cloud lists nothing any more.

        Raises CredentialsError, RateLimitError, UnknownProvisionError when the cloud itself refuses.
        """
        if not record.down_wall_s:
            record = self.records.change(record.cluster, down_wall_s=self.wall_s())
        if self.wall_s() - record.down_wall_s > DOWN_S:
            is_gone = self.by_cloud(record)  # first: SkyPilot may be what hangs
            with suppress(RateLimitError, UnknownProvisionError):
                self._is_at_work(record)
            return is_gone
        try:
            if self._is_at_work(record):
                return False
        except UnknownProvisionError:
            pass  # SkyPilot refuses: the cloud is asked
        return self.by_cloud(record)

    def by_cloud(self, record: SkyRecord) -> bool:
        """Ask the cloud to end what it lists, and return whether it lists nothing."""
        left = self.standing(record)
        if left:
            self.machines[record.cloud].end(left)
        return not left

    def standing(self, record: SkyRecord) -> tuple[Machine, ...]:
        """Return the machines of a cluster that exist."""
        return self.machines[record.cloud].listed({CLUSTER: record.cluster}, (record.region,))

    def _break_off(self, record: SkyRecord) -> None:
        """Stop launches that are under way, the one of a process that died before it noted its id among them."""
        for request in self.sky.launches(record.cluster):
            if request not in record.spent and self.sky.progress(request) is Progress.WAITING:
                self.sky.cancel(request)

    def _is_at_work(self, record: SkyRecord) -> bool:
        """Is SkyPilot ending the cluster? It is asked to, where it knows of it."""
        if record.down:
            return self.sky.progress(record.down) is Progress.WAITING
        self._break_off(record)
        if not self.sky.has(record.cluster):
            return False
        self.records.change(record.cluster, down=self.sky.down(record.cluster))
        return True
