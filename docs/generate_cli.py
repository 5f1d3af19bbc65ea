"""Write docs/cli.md from the command line itself. Run by `make docs`; a test fails while the page is stale."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from hexcloud.cli import app

PAGE = Path(__file__).parent / "cli.md"
HEAD = """# The command line

This page is generated: change the docstrings and options in `hexcloud/cli/`, then run `make docs`.

Exit codes: 0 done; 1 refused or failed (no feasible plan, budget too small, run failed); 2 wrong input. With `--json`
stdout holds one JSON document and nothing else, also for an error: `{"error": {"type": ..., "message": ...}}`; only an
option that does not exist, or whose value cannot be read, is told on stderr alone.
`HEXCLOUD_HOME` names the folder of the store and the runs (default `~/.hexcloud`).
"""


def reference() -> str:
    """Return the page."""
    root = typer.main.get_command(app)
    return "\n".join([HEAD, *_sections("hexcloud", root)])


def _sections(name: str, command: Any) -> Iterator[str]:
    """Yield a command's section, or those of a group's commands."""
    commands = getattr(command, "commands", None)
    if commands is None:
        yield _section(name, command)
        return
    for child in sorted(commands):
        if not commands[child].hidden:
            yield from _sections(f"{name} {child}", commands[child])


def _section(name: str, command: Any) -> str:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option" and param.name != "help"]
    usage = " ".join([name, *(_usage(param) for param in arguments), *(["[OPTIONS]"] if options else [])])
    help_text = " ".join((command.help or "").split())
    lines = [f"## {name}", "", help_text, "", f"    {usage}", ""]
    if arguments or options:
        lines += ["| | | default |", "| --- | --- | --- |"]
        lines += [f"| `{_metavar(param)}` | {param.help or ''} | {_default(param)} |" for param in arguments]
        lines += [f"| `{', '.join(param.opts)}` | {param.help or ''} | {_default(param)} |" for param in options]
        lines.append("")
    return "\n".join(lines)


def _usage(param: Any) -> str:
    return _metavar(param) if param.required else f"[{_metavar(param)}]"


def _metavar(param: Any) -> str:
    return str(param.metavar or param.name.upper())


def _default(param: Any) -> str:
    shown = param.show_default if isinstance(param.show_default, str) else param.default
    return "" if shown in (None, False, ()) else f"{shown}"


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
