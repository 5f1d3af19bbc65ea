"""Where words go: JSON alone on stdout for machines, tables for readers."""

import json
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console

FILE_WIDTH = 120
"""Columns where there is no terminal whose width could be asked for."""


def print_json(value: object) -> None:
    """Print one JSON document on stdout."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False))


def console(as_json: bool = False) -> "Console":
    """Return where a reader looks: stdout, or stderr when a machine reads stdout."""
    from rich.console import Console

    # markup=False: names of MILP rows, such as stock[...], would be read as styles and vanish.
    shown = Console(stderr=as_json, highlight=False, markup=False)
    if not shown.is_terminal:
        shown.width = FILE_WIDTH
    return shown


def say(message: str) -> None:
    """Tell the user something that is no result."""
    typer.echo(message, err=True)
