"""What must be true of a Google Cloud project before a plan rents there: permissions, quota. Changes nothing."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from google.api_core.exceptions import from_http_response
from google.auth.transport.requests import AuthorizedSession

from hexcloud.adapters.clouds.gcp import GcpClient, Patience
from hexcloud.adapters.clouds.gcp_access import GcpAccess, Service, open_access
from hexcloud.adapters.clouds.gcp_errors import Ask, translated
from hexcloud.adapters.clouds.gcp_quotas import GLOBAL_KEY, quotas_of
from hexcloud.domain.errors import MarketError

READING = (
    "compute.acceleratorTypes.list",
    "compute.machineTypes.list",
    "compute.projects.get",
    "compute.regions.list",
    "compute.zones.list",
)
RENTING = (
    "compute.disks.create",
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.get",
    "compute.instances.list",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.subnetworks.use",
    "compute.subnetworks.useExternalIp",
    "compute.zoneOperations.get",
)
"""What it takes to start, watch and end a machine with an address of its own."""
PATIENCE = Patience(call_s=10.0, retry_s=15.0)
FEW_LINES = 100
"""Of the price list: enough to see that it can be read."""


class GcpCheck(NamedTuple):
    """One thing that must be true, and what was found."""

    name: str
    ok: bool
    found: str


def gcp_checks(
    needs: Mapping[str, float],
    regions: tuple[str, ...] = (),
    access: Callable[[], GcpAccess] = open_access,
    patience: Patience = PATIENCE,
) -> list[tuple[str, bool, str]]:
    """Check credentials, project and regions, price list, permissions and quota; without credentials only these.

    `needs`: quota key (`gcp/us-central1/NVIDIA_L4_GPUS`) -> GPUs; together they also need that of all regions.
    `regions`: those that the plan rents in. Never raises for what Google refuses.
    """
    try:
        way_in = access()
    except MarketError as error:
        return [GcpCheck("gcp credentials", False, str(error))]
    client = GcpClient(way_in, patience)
    return [
        GcpCheck("gcp credentials", True, way_in.account),
        _check("gcp project", lambda: _project(client, regions)),
        _check("gcp prices", lambda: _prices(client)),
        _check("gcp permissions", lambda: _permissions(way_in, READING + RENTING, patience)),
        *(_quotas(client, needs) if needs else ()),
    ]


def _check(name: str, check: Callable[[], tuple[bool, str]]) -> GcpCheck:
    try:
        return GcpCheck(name, *check())
    except MarketError as error:
        return GcpCheck(name, False, str(error))


def _project(client: GcpClient, regions: tuple[str, ...]) -> tuple[bool, str]:
    listed = {region.name for region in client.regions()}
    unknown = sorted(set(regions) - listed)
    if unknown:
        return False, f"{client.access.project} has no region {', '.join(unknown)}; plan without it"
    return True, f"{client.access.project}, {len(listed)} regions"


def _prices(client: GcpClient) -> tuple[bool, str]:
    client.skus(most=FEW_LINES)
    return True, "the price list can be read"


def _permissions(access: GcpAccess, wanted: tuple[str, ...], patience: Patience) -> tuple[bool, str]:
    lacking = sorted(set(wanted) - _granted(access, wanted, patience))
    if lacking:
        return False, f"lacking: {', '.join(lacking)}; grant roles/compute.instanceAdmin.v1 or a role that has them"
    return True, f"all {len(wanted)} are granted"


def _granted(access: GcpAccess, wanted: tuple[str, ...], patience: Patience) -> set[str]:
    """Ask which permissions the account has on the project; asking needs none."""
    ask = Ask("permissions", "cloudresourcemanager.googleapis.com", "", access.project)
    url = f"{access.url(Service.RESOURCES)}/v3/projects/{access.project}:testIamPermissions"
    credentials = access.credentials_for(Service.RESOURCES)
    with translated(ask), AuthorizedSession(credentials) as session:  # type: ignore[no-untyped-call]
        answer: Any = session.post(url, json={"permissions": list(wanted)}, timeout=patience.call_s)
        if not answer.ok:
            raise from_http_response(answer)  # type: ignore[no-untyped-call]
        return {str(name) for name in answer.json().get("permissions", [])}


def _quotas(client: GcpClient, needs: Mapping[str, float]) -> Iterator[GcpCheck]:
    try:
        over_all = client.global_quotas()
        found = [quota for region in client.regions() for quota in quotas_of(region.name, region.quotas, over_all)]
    except MarketError as error:
        yield GcpCheck("gcp quotas", False, str(error))
        return
    left = {quota.key: quota for quota in found}
    wanted = {GLOBAL_KEY: sum(needs.values()), **needs}
    if GLOBAL_KEY not in left:
        del wanted[GLOBAL_KEY]  # not every project has one
    for key, needed in sorted(wanted.items()):
        quota = left.get(key)
        if quota is None:
            yield GcpCheck(
                f"gcp quota {key}", False, f"not listed for this project, {needed:g} needed; ask Google for it"
            )
            continue
        mend = "" if quota.left >= needed else "; ask Google for a higher quota"
        found_left = f"{quota.left:g} of {quota.limit or 0:g} left, {needed:g} needed{mend}"
        yield GcpCheck(f"gcp quota {key}", not mend, found_left)
