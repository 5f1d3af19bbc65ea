"""Secrets never show."""

from hexcloud.domain.command import Command, run_store
from hexcloud.domain.fleet import RunId


def test_printing_a_command_hides_its_secrets() -> None:
    command = Command(image=None, argv=("x",), env={}, secrets={"TOKEN": "hush"}, files={"node.json": "{}"})
    assert "hush" not in f"{command!r} {command} {[command]}"
    assert "TOKEN" in repr(command)


def test_a_run_has_its_own_part_of_the_users_store() -> None:
    assert run_store("s3://runs/team/", RunId("main-1")) == "s3://runs/team/main-1"
    assert run_store("", RunId("main-1")) == ""
