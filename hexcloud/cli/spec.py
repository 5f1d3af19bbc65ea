"""spec_of: a run.yaml with the command line's options over it."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hexcloud.domain.errors import ConfigError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from hexcloud.domain.run import RunSpec

NO_TRACE = "none"


def spec_of(path: Path | None, options: Mapping[str, object]) -> "RunSpec":
    """Return the run that the user asks for. Options that are None or empty were not given. Raises ConfigError."""
    from pydantic import ValidationError

    from hexcloud.domain.run import RunSpec

    given = {name: value for name, value in options.items() if value not in (None, (), [])}
    if given.get("trace") == NO_TRACE:
        given["trace"] = None
    if path is None:
        written = RunSpec()
    else:
        from hexcloud.adapters.files import load_run_spec

        written = load_run_spec(path)
    try:
        return RunSpec.model_validate(written.model_dump(exclude_unset=True) | given)
    except ValidationError as error:
        raise ConfigError("; ".join(_spell(fault) for fault in error.errors())) from error


def _spell(fault: "ErrorDetails") -> str:
    option = "-".join(map(str, fault["loc"])).replace("_", "-")
    if fault["type"] == "finite_number":
        return f"--{option} {fault['input']}: must be a finite number; leave it out where there is no limit"
    return f"--{option} {fault['input']!r}: {fault['msg'].removeprefix('Value error, ')}"
