"""Secrets never show."""

from hexcloud.domain.command import Command


def test_printing_a_command_hides_its_secrets() -> None:
    command = Command(image=None, argv=("x",), env={}, secrets={"TOKEN": "hush"}, files={"node.json": "{}"})
    assert "hush" not in f"{command!r} {command} {[command]}"
    assert "TOKEN" in repr(command)
