"""What an error looks like: one message on stderr, or JSON on stdout where a machine reads it."""

import json

import typer

from hexcloud.domain.errors import BudgetError, ConfigError, HexcloudError, InfeasibleError, ProvisionError

WRONG_INPUT = 2
REFUSED = 1


class RefusedError(HexcloudError):
    """An error in the user's own words, with fields for a machine. `kind` is the name of the error it stands for."""

    def __init__(self, message: str, kind: str, fields: dict[str, object]) -> None:
        super().__init__(message)
        self.kind = kind
        self.fields = fields


def refuse(error: HexcloudError, as_json: bool) -> int:
    """Show an error and return the exit code: 2 for wrong input, else 1."""
    if as_json:
        typer.echo(json.dumps({"error": error_fields(error)}, indent=2))
    else:
        typer.echo(f"error: {error}", err=True)
    return WRONG_INPUT if isinstance(error, ConfigError) else REFUSED


def error_fields(error: HexcloudError) -> dict[str, object]:
    """Return an error as a machine reads it."""
    fields: dict[str, object] = {"type": type(error).__name__, "message": str(error)}
    match error:
        case RefusedError():
            fields |= {"type": error.kind, **error.fields}
        case InfeasibleError():
            fields |= {
                "rules": list(error.rules),
                "nearest_samples_per_s": error.nearest_samples_per_s,
                "nearest_usd_per_hour": error.nearest_usd_per_hour,
            }
        case BudgetError():
            fields["least_usd"] = error.least_usd
        case ProvisionError():
            fields |= {"offer": error.offer_id, "code": error.code}
    return fields
