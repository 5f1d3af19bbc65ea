"""GcpMachines: our machines on Compute Engine by their labels, and their end. Implements `machines.Machines`.

Operations are asked for with calls that return at once: a list, not an operation, says that a machine is gone. The
operations of the client library would poll the real endpoint whatever endpoint was set.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from google.api_core import exceptions as core
from google.auth.exceptions import GoogleAuthError, TransportError
from google.cloud import compute_v1

from hexcloud.adapters.clouds.gcp_access import GcpAccess, Service, open_access
from hexcloud.adapters.clouds.gcp_errors import FOREIGN, Ask, is_throttling, reason
from hexcloud.adapters.clouds.machines import EVERYWHERE, Answer, Machine, ask_all, carries
from hexcloud.domain.errors import CredentialsError, MarketError, ProvisionError, RateLimitError, UnknownProvisionError

GCP = "gcp"
UNREACHABLE = "UNREACHABLE"
"""What Google warns of a zone that it could not ask."""
CALL_S = 20.0
"""Wall seconds that one call may wait for its answer."""


class GcpMachines:
    """The machines of one project. May be used from several threads: every call has a connection of its own."""

    def __init__(self, access: GcpAccess | None = None) -> None:
        """Without access, the user's own is opened at the first call."""
        self._access = access

    def listed(self, tags: Mapping[str, str], regions: Iterable[str] = ()) -> tuple[Machine, ...]:
        """See `Machines.listed`."""
        return self.look(tags, regions).whole()

    def look(self, tags: Mapping[str, str], regions: Iterable[str] = ()) -> Answer:
        """See `Machines.look`. One call answers for all regions, and names those that it could not reach."""
        wanted = frozenset(regions)
        try:
            found, dark = self._answer(tags)
        except ProvisionError as error:
            return Answer((), dict.fromkeys(sorted(wanted) or (EVERYWHERE,), error))
        problems = {
            region: UnknownProvisionError(f"Google Cloud cannot reach {region}", code="unreachable") for region in dark
        }
        return Answer(
            tuple(one for one in found if (not wanted or one.region in wanted) and carries(one.tags, tags)),
            {region: problem for region, problem in problems.items() if not wanted or region in wanted},
        )

    def _answer(self, tags: Mapping[str, str]) -> tuple[tuple[Machine, ...], list[str]]:
        """Return the machines, and the regions with a zone that Google itself could not ask."""
        with self._typed("machines", "compute.instances.list") as access:
            client = compute_v1.InstancesClient(**_rest(access))
            request = compute_v1.AggregatedListInstancesRequest(project=access.project, filter=_filter(tags))
            with client:
                pages = tuple(client.aggregated_list(request, timeout=CALL_S).pages)
            scopes = [scope for page in pages for scope in page.items.items()]
            dark = {name for page in pages for name in page.unreachables}
            dark |= {name for name, scoped in scopes if str(getattr(scoped.warning, "code", "")) == UNREACHABLE}
            found = tuple(_machine(instance) for _, scoped in scopes for instance in scoped.instances)
            return found, sorted({_region(name) for name in dark})

    def known(self, tags: Mapping[str, str], regions: Iterable[str] = ()) -> tuple[Machine, ...]:
        """See `Machines.known`. Google tells nothing of a machine that was deleted, and a stopped one has a disk."""
        return self.listed(tags, regions)

    def end(self, machines: Iterable[Machine]) -> None:
        """See `Machines.end`."""
        ask_all(self._end, machines)

    def tag(self, machine: Machine, tags: Mapping[str, str]) -> None:
        """See `Machines.tag`. Somebody who changed the labels in between is asked about again, by the next call."""
        with self._typed(f"labels of {machine.id}", "compute.instances.setLabels") as access:
            at: dict[str, Any] = {"project": access.project, "zone": machine.zone, "instance": machine.id}
            with compute_v1.InstancesClient(**_rest(access)) as client:
                now = client.get(**at, timeout=CALL_S)
                labels = compute_v1.InstancesSetLabelsRequest(
                    label_fingerprint=now.label_fingerprint, labels={**dict(now.labels), **tags}
                )
                client.set_labels_unary(**at, instances_set_labels_request_resource=labels, timeout=CALL_S)

    def zone_name(self, region: str, zone: str) -> str:
        """Return the zone: all accounts call it the same."""
        return zone

    def _end(self, machine: Machine) -> None:
        with self._typed(f"machine {machine.id}", "compute.instances.delete") as access:
            self._delete(access, machine)

    def _delete(self, access: GcpAccess, machine: Machine) -> None:
        with compute_v1.InstancesClient(**_rest(access)) as client:
            try:
                client.delete_unary(project=access.project, zone=machine.zone, instance=machine.id, timeout=CALL_S)
            except core.NotFound:
                return  # it ended meanwhile

    @contextmanager
    def _typed(self, what: str, permission: str) -> Iterator[GcpAccess]:
        """Give the access, and turn what the client library raises into our errors."""
        try:
            self._access = access = self._access or open_access()
        except MarketError as error:
            raise CredentialsError(f"Google Cloud: {error}") from error
        ask = Ask(what=what, api="compute.googleapis.com", permission=permission, project=access.project)
        try:
            yield access
        except FOREIGN as error:
            raise _kind(error)(f"Google Cloud {what}: {reason(error, ask)}", code=_code(error)) from error


def _kind(error: BaseException) -> type[CredentialsError] | type[RateLimitError] | type[UnknownProvisionError]:
    if is_throttling(error):
        return RateLimitError
    is_stranger = isinstance(error, GoogleAuthError) and not isinstance(error, TransportError)
    return CredentialsError if is_stranger or isinstance(error, core.Unauthorized) else UnknownProvisionError


def _code(error: BaseException) -> str:
    """Return the reason that Google gives, such as `quotaExceeded`, else the status, else the kind of failure."""
    if isinstance(error, core.GoogleAPICallError):
        reasons = [str(one["reason"]) for one in error.errors if isinstance(one, dict) and one.get("reason")]
        return reasons[0] if reasons else str(int(error.code or 0))
    return type(error).__name__


def _rest(access: GcpAccess) -> dict[str, Any]:
    return {
        "credentials": access.credentials_for(Service.COMPUTE),
        "client_options": access.client_options(Service.COMPUTE),
    }


def _filter(tags: Mapping[str, str]) -> str:
    """Return one condition, for `run = x` alone is short enough to be no error anywhere; the rest is seen here."""
    key, value = next(iter(tags.items()))
    return f"labels.{key} = {value}" if value else f"labels.{key}:*"


def _began_s(created: str) -> float | None:
    try:
        return datetime.fromisoformat(created).timestamp()
    except ValueError:
        return None


def _region(scope: str) -> str:
    """Return the region of `.../zones/us-central1-a`."""
    return scope.rsplit("/", 1)[-1].rpartition("-")[0]


def _machine(instance: Any) -> Machine:
    zone = instance.zone.rsplit("/", 1)[-1]
    cards = instance.network_interfaces
    return Machine(
        cloud=GCP,
        region=_region(zone),
        zone=zone,
        id=instance.name,
        instance_type=instance.machine_type.rsplit("/", 1)[-1],
        private_ip=cards[0].network_i_p if cards else "",
        tags=dict(instance.labels),
        began_s=_began_s(instance.creation_timestamp),
    )
