"""Words in, words out: the command line. Importing it loads Typer and nothing heavy; commands import what they use."""

from hexcloud.cli.app import app, main

__all__ = ["app", "main"]
