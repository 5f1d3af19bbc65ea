import time
from pathlib import Path

import pytest

from hexcloud.node.startup import startup


def node_dir(tmp_path: Path, began: str | None, ended: str | None) -> Path:
    for name, moment in (("setup-began", began), ("setup-ended", ended)):
        if moment is not None:
            (tmp_path / name).write_text(moment)
    directory = tmp_path / "0"
    directory.mkdir()
    return directory


def test_the_set_up_is_as_long_as_its_notes_say(tmp_path: Path) -> None:
    found = startup(node_dir(tmp_path, "1790000000.25\n", "1790000042.75\n"))
    assert found.setup_s == pytest.approx(42.5)
    assert found.program_s > 0


@pytest.mark.parametrize(("began", "ended"), [(None, None), ("1", None), ("x", "2"), ("5", "3"), ("", "")])
def test_a_set_up_without_sensible_notes_counts_nothing(tmp_path: Path, began: str | None, ended: str | None) -> None:
    assert startup(node_dir(tmp_path, began, ended)).setup_s == 0.0


def test_who_registers_again_has_not_started_anew(tmp_path: Path) -> None:
    directory = node_dir(tmp_path, None, None)
    first = startup(directory)
    time.sleep(0.02)
    assert startup(directory) == first
