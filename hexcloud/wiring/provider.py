"""Who rents a run's machines, on which clouds, with how much patience, and what must be there before it does."""

import importlib.util
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from hexcloud.domain.errors import ConfigError, StoreError
from hexcloud.domain.run import LOCAL, RunRecord, RunSpec, RunState
from hexcloud.wiring.market import believed_market

if TYPE_CHECKING:
    from hexcloud.adapters.clouds.machines import Machines
    from hexcloud.adapters.objects import Bucket
    from hexcloud.controller.outside import Timing
    from hexcloud.ports import Authority, Provisioner

SKYPILOT = "skypilot"
PROVIDERS = (LOCAL, SKYPILOT)
BUCKETS = ("s3://", "gs://")
"""Stores that machines on different clouds reach; `file://` is a folder of one computer."""
RENTED_CLOUDS = ("aws", "gcp")
"""Where SkyPilot rents for us: clouds that can be asked for machines by their tags, so that none is ever forgotten."""


def require_provider(spec: RunSpec) -> None:
    """Raise ConfigError for a provider that is none, or that lacks what it needs."""
    from hexcloud.adapters.files import suggest

    if spec.provider not in PROVIDERS:
        raise ConfigError(
            f"provider: {spec.provider!r} is unknown{suggest(spec.provider, PROVIDERS)}; "
            f"this version rents from: {', '.join(PROVIDERS)}"
        )
    if not spec.is_real:
        objects_of(spec)
        return
    if spec.trace is not None:
        raise ConfigError(f"trace: real machines have real prices; leave out {spec.trace!r} or set `trace: null`")
    _require_bucket(spec)
    if missing := _missing_env(spec):
        raise ConfigError(f"pass_env: {', '.join(missing)} not set in this environment")
    objects_of(spec)
    _require_extra(spec)


def _require_bucket(spec: RunSpec) -> None:
    """Raise ConfigError for a store that rented machines do not share: each would have a folder of its own."""
    from hexcloud.adapters.objects import typed

    if spec.store is None or not spec.store.lower().startswith(BUCKETS):
        given = "" if spec.store is None else f"{typed(spec.store)}: "
        raise ConfigError(
            f"store: {given}provider {spec.provider} needs a bucket in which the machines meet: "
            "--store s3://BUCKET/PREFIX or gs://BUCKET/PREFIX (docs/first-run.md)"
        )


def _require_extra(spec: RunSpec) -> None:
    missing = [name for name in ("sky", "boto3", "google.cloud.compute_v1") if not is_installed(name)]
    if missing:
        raise ConfigError(
            f"provider: {spec.provider} needs what is not installed here ({', '.join(missing)}): "
            "pip install 'hexcloud[cloud]'"
        )


def is_installed(name: str) -> bool:
    """Can a module be imported? Imports at most the packages that it is in."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):  # not even the package that it would be in, or one that is kept out
        return False


def rented_clouds(spec: RunSpec, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the clouds whose offers a run can rent, of those it wants (none: all). Raises ConfigError."""
    if not spec.is_real:
        return wanted
    kept = tuple(cloud for cloud in RENTED_CLOUDS if cloud in wanted or not wanted)
    refused = [cloud for cloud in wanted if cloud not in RENTED_CLOUDS]
    if refused and (spec.cloud or not kept):
        raise ConfigError(
            f"cloud: provider {spec.provider} does not rent on {', '.join(refused)}: machines there could not be found "
            f"again by their tags; it rents on {', '.join(RENTED_CLOUDS)}"
        )
    return kept


def largest_gang(spec: RunSpec, wanted: int) -> int:
    """Return how many machines a gang may have at most, of the number that a policy allows: who rents them has to."""
    from hexcloud.adapters.provisioners.naming import MAX_GANG

    return min(wanted, MAX_GANG) if spec.is_real else wanted


def timing_of(run: RunRecord) -> "Timing":
    """Return the patience with a run's machines; on real clouds it follows how long they took to start before."""
    from hexcloud.controller.outside import Timing

    if not run.spec.is_real:
        return Timing()
    market = believed_market(run.policy.clouds).market(run.created_wall_s)
    learned = [offer.startup_s for offer in market.offers if offer.startup_s is not None]
    return Timing.of_clouds(max([market.calibration.startup_s, *learned]))


def provisioner_of(run: RunRecord) -> "Provisioner":
    """Return SkyPilot for a run. Raises ConfigError when it is not installed."""
    _require_extra(run.spec)
    from hexcloud.adapters.provisioners.sky_api import SkyApi
    from hexcloud.adapters.provisioners.skypilot import SkyPilotProvisioner

    machines = {cloud: machines_on(cloud) for cloud in rented_clouds(run.spec, run.policy.clouds)}
    return SkyPilotProvisioner(run.id, Path(run.run_dir), SkyApi(), machines)


def machines_on(cloud: str) -> "Machines":
    """Return the account on a cloud of RENTED_CLOUDS, asked for machines by their tags. Nothing is asked yet."""
    if cloud == "aws":
        from hexcloud.adapters.clouds.aws_machines import AwsMachines

        return AwsMachines()
    from hexcloud.adapters.clouds.gcp_machines import GcpMachines

    return GcpMachines()


def objects_of(spec: RunSpec, run_id: str = "") -> "Bucket | None":
    """Return the bucket of a run, or None where its nodes share a folder. Raises ConfigError for a URL that is none."""
    from hexcloud.adapters.objects import Bucket
    from hexcloud.domain.command import run_store
    from hexcloud.domain.fleet import RunId

    if spec.store is None:
        return None
    return Bucket(run_store(spec.store, RunId(run_id)) if run_id else spec.store)


def authority_of(run: RunRecord, key: bytes) -> "Authority | None":
    """Return who vouches for the run's coordinator; nobody does, or need, where all nodes are on this computer."""
    if not run.spec.is_real:
        return None
    from hexcloud.adapters.certificates import RunAuthority

    return RunAuthority(key, run.created_wall_s)


def passed_env(run: RunRecord) -> dict[str, str]:
    """Return the variables that the run's machines are to have.

    Raises ConfigError for one that is not set here: machines would come up without it, and fail one after another. A
    run that ends rents none and does without.
    """
    missing = _missing_env(run.spec)
    if missing and run.state is not RunState.STOPPING:
        raise ConfigError(
            f"pass_env: {', '.join(missing)} not set in this environment, and the machines of run {run.id} need it: "
            f"set it and go on, or end the run by `hexcloud down {run.id}`"
        )
    return {name: os.environ[name] for name in run.spec.pass_env if name in os.environ}


def _missing_env(spec: RunSpec) -> list[str]:
    return [name for name in spec.pass_env if name not in os.environ]


def require_store(spec: RunSpec) -> None:
    """Write, read, list and remove an object in the run's store. Raises ConfigError: then nothing should be rented."""
    store = objects_of(spec)
    if store is None:
        return
    try:
        store.prove(f"preflight/{secrets.token_hex(8)}")
    except StoreError as error:
        raise ConfigError(f"store: nothing was rented, since the machines could not meet there: {error}") from error
