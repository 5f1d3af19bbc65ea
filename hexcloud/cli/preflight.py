"""`hexcloud preflight`: can this machine plan and run the local default, and do the clouds let us rent a plan?"""

import importlib.util
import shutil
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from hexcloud.cli.ages import price_dates
from hexcloud.cli.options import AsJson, Model, PolicyName, RunFile, Target
from hexcloud.cli.output import print_json
from hexcloud.cli.spec import spec_of
from hexcloud.domain.errors import HexcloudError

if TYPE_CHECKING:
    from hexcloud.domain.market import Market
    from hexcloud.domain.plan import ExecutionPlan, Slot
    from hexcloud.domain.run import RunSpec

MIN_MEMORY_GIB = 3.0
"""A trainer and four rollout processes of the local default, about 0.5 GiB each, and the controller."""
MIN_DISK_GIB = 1.0
_LIBRARIES = ("torch", "transformers", "safetensors", "highspy", "networkx", "sqlalchemy", "apscheduler", "uvicorn")
GIB = 1 << 30


@dataclass(frozen=True)
class Check:
    """One thing that must be true, and what was found."""

    name: str
    ok: bool
    found: str


def preflight(
    cloud: Annotated[
        list[str] | None,
        typer.Option("--cloud", help="Also check credentials, permissions and quota for a plan on this cloud."),
    ] = None,
    model: Model = None,
    target_throughput: Target = None,
    policy: PolicyName = None,
    run: RunFile = None,
    as_json: AsJson = False,
) -> None:
    """Check this machine, the catalogs and the store, and clouds by name. Exit 1 when something would go wrong."""
    asked = {"model": model, "target": target_throughput, "policy": policy}
    checks = [_run(name, check) for name, check in _CHECKS.items()]
    for name in cloud or ():
        checks += _cloud_checks(name, spec_of(run, {**asked, "cloud": [name]}))
    if as_json:
        print_json({"ok": all(check.ok for check in checks), "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            typer.echo(f"{'ok  ' if check.ok else 'FAIL'} {check.name}: {check.found}")
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


def _run(name: str, check: Callable[[], tuple[bool, str]]) -> Check:
    try:
        return Check(name, *check())
    except (HexcloudError, OSError) as error:
        return Check(name, False, str(error))


def _cloud_checks(cloud: str, spec: "RunSpec") -> list[Check]:
    """Ask a cloud's own API about what the plan needs of it."""
    from hexcloud import wiring

    plan = f"{cloud} plan"
    try:
        needs = wiring.cloud_needs(spec)
    except HexcloudError as error:
        return [Check(plan, False, str(error))]
    found = "; ".join(needs.machines)
    return [Check(plan, True, found), *(Check(*check) for check in wiring.cloud_checks(cloud, needs))]


def require_accounts(plan: "ExecutionPlan", market: "Market") -> None:
    """Ask each cloud whether its account may start, see and end what a plan rents. Raises ConfigError: rent nothing."""
    from hexcloud import wiring
    from hexcloud.controller.needs import CloudNeeds, needs_of
    from hexcloud.domain.errors import ConfigError
    from hexcloud.domain.offer import place_of

    clouds: dict[str, list[Slot]] = {}
    for slot in plan.placement.slots:
        clouds.setdefault(place_of(slot.offer_id).cloud, []).append(slot)
    refused = []
    for cloud, slots in sorted(clouds.items()):
        part = plan.model_copy(update={"placement": plan.placement.model_copy(update={"slots": tuple(slots)})})
        needs: CloudNeeds = needs_of(part, market)
        refused += [check for check in wiring.cloud_checks(cloud, needs) if not check[1]]
    if refused:
        lines = "\n".join(f"  {name}: {found}" for name, _, found in refused)
        raise ConfigError(f"nothing was rented, since it would fail:\n{lines}")


def _python() -> tuple[bool, str]:
    return sys.version_info >= (3, 11), sys.version.split()[0]


def _libraries() -> tuple[bool, str]:
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    return not missing, f"missing: {', '.join(missing)}" if missing else "all there"


def _catalogs() -> tuple[bool, str]:
    from hexcloud import wiring
    from hexcloud.adapters.files import load_models

    market = wiring.believed_market().market(time.time())
    findings = f"{len(market.findings)} rows not believed as they stood"
    found = f"{len(market.offers)} offers of {price_dates(market.offers)}, {findings}, {len(load_models())} models"
    return bool(market.offers), found


def _solver() -> tuple[bool, str]:
    from hexcloud import wiring
    from hexcloud.domain.fleet import FleetState
    from hexcloud.domain.run import RunSpec
    from hexcloud.planner.plan import make_plan

    given = wiring.snapshot_input(RunSpec())
    plan = make_plan(given.market, given.workload, given.policy, FleetState()).plan
    return True, f"the default plan costs {plan.allocation.usd_per_hour:.2f} USD/h"


def _store() -> tuple[bool, str]:
    from hexcloud import wiring

    runs = wiring.open_store().runs()
    return True, f"{wiring.home()}, {len(runs)} runs"


def _memory() -> tuple[bool, str]:
    import psutil

    free_gib = psutil.virtual_memory().available / GIB
    return free_gib >= MIN_MEMORY_GIB, f"{free_gib:.1f} GiB free, {MIN_MEMORY_GIB:.0f} needed for a local run"


def _disk() -> tuple[bool, str]:
    from hexcloud import wiring

    home = wiring.home()
    there = next(folder for folder in (home, *home.parents) if folder.exists())
    free_gib = shutil.disk_usage(there).free / GIB
    return free_gib >= MIN_DISK_GIB, f"{free_gib:.1f} GiB free in {there}"


def _network() -> tuple[bool, str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return True, f"a server can listen on 127.0.0.1 (tried port {server.getsockname()[1]})"


_CHECKS: dict[str, Callable[[], tuple[bool, str]]] = {
    "python": _python,
    "libraries": _libraries,
    "catalogs": _catalogs,
    "solver": _solver,
    "store": _store,
    "memory": _memory,
    "disk": _disk,
    "network": _network,
}
