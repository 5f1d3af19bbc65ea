"""Machines of every run, on every account that this computer can ask."""

from typing import TYPE_CHECKING

from hexcloud.wiring.provider import RENTED_CLOUDS, is_installed, machines_on
from hexcloud.wiring.run import provisioner

if TYPE_CHECKING:
    from hexcloud.domain.run import RunRecord
    from hexcloud.ports import Clock, Roll, Store

_SDKS = {"aws": "boto3", "gcp": "google.cloud.compute_v1"}


def rolls(store: "Store") -> "tuple[Roll, ...]":
    """Return this computer's roll, and that of each account whose library is installed. Raises StoreError."""
    from hexcloud.adapters.rolls import ComputerRoll

    local = [(run.id, provisioner(_ending(run))) for run in store.runs() if not run.spec.is_real]
    return (ComputerRoll(local), *account_rolls())


def wall_clock() -> "Clock":
    """Return the clock on the wall."""
    from hexcloud.adapters.clock import RunClock

    return RunClock(0.0, 0.0)


def account_rolls() -> "tuple[Roll, ...]":
    """Return the rolls of the accounts alone."""
    from hexcloud.adapters.rolls import AccountRoll

    return tuple(AccountRoll(cloud, machines_on(cloud)) for cloud in RENTED_CLOUDS if is_installed(_SDKS[cloud]))


def runs_by_tag(store: "Store") -> "dict[str, RunRecord]":
    """Return every known run by its name on machines. Raises StoreError."""
    from hexcloud.adapters.provisioners.naming import run_label

    return {run_label(run.id): run for run in store.runs()}


def _ending(run: "RunRecord") -> "RunRecord":
    """Return a run as one that ends: such a one needs no trace that can be read."""
    from hexcloud.domain.run import RunState

    return run.model_copy(update={"state": RunState.STOPPING})
