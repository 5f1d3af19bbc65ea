"""find_run: from what a user types to the run that is meant."""

from typing import TYPE_CHECKING

from hexcloud.domain.errors import ConfigError

if TYPE_CHECKING:
    from hexcloud.domain.run import RunRecord
    from hexcloud.ports import Store


def find_run(store: "Store", text: str | None) -> "RunRecord":
    """Return the run with this id, else the newest with this name, else the only one whose id begins so.

    Without a text: the newest. Raises ConfigError when none or several are meant.
    """
    runs = store.runs()
    if not runs:
        raise ConfigError("there is no run yet; `hexcloud up` starts one")
    if text is None:
        return runs[0]
    exact = [run for run in runs if run.id == text] or [run for run in runs if run.spec.name == text]
    meant = exact[:1] or [run for run in runs if run.id.startswith(text)]
    if len(meant) == 1:
        return meant[0]
    known = ", ".join(run.id for run in (meant or runs)[:5])
    raise ConfigError(f"run {text!r} is {'one of several' if meant else 'unknown'}: {known}")
