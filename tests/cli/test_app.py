import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest


def test_version(cli: Callable[..., Any]) -> None:
    said = cli("--version")
    assert said.code == 0
    assert said.out.startswith("hexcloud 0.")


def test_help_names_every_command_and_hides_the_inner_one(cli: Callable[..., Any]) -> None:
    said = cli("--help")
    assert said.code == 0
    for command in [
        "plan",
        "up",
        "attach",
        "status",
        "events",
        "replan",
        "down",
        "report",
        "preflight",
        "profile",
        "catalog",
    ]:
        assert f"\n  {command} " in said.out
    assert "control" not in said.out


def test_an_unknown_option_is_wrong_input(cli: Callable[..., Any]) -> None:
    said = cli("plan", "--modle", "x")
    assert said.code == 2
    assert "--model" in said.err


def test_an_error_is_one_message_on_stderr(cli: Callable[..., Any]) -> None:
    said = cli("status", "nobody")
    assert (said.code, said.out) == (2, "")
    assert said.err == "error: there is no run yet; `hexcloud up` starts one\n"


def test_an_error_is_json_where_a_machine_reads(cli: Callable[..., Any]) -> None:
    said = cli("status", "--json")
    assert said.code == 2
    assert json.loads(said.out) == {
        "error": {"type": "ConfigError", "message": "there is no run yet; `hexcloud up` starts one"}
    }
    assert said.err == ""


HEAVY = {"torch", "sky", "boto3", "google", "sglang", "highspy", "sqlalchemy", "networkx", "fastapi", "pydantic"}


@pytest.mark.parametrize("code", ["import hexcloud.cli", "from hexcloud.cli import main; main(['--help'])"])
def test_the_command_line_loads_nothing_heavy(code: str) -> None:
    check = f"{code}\nimport sys\nfound = {HEAVY!r} & set(sys.modules)\nsys.exit(str(found) if found else 0)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
