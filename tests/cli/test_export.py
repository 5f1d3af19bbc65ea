"""`hexcloud catalog export` writes what `hexcloud catalog list` shows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_the_files_are_named_and_what_is_left_out_is_said(cli: Callable[..., Any], tmp_path: Path) -> None:
    said = cli("catalog", "export", str(tmp_path / "v8"))
    assert said.code == 0
    assert str(tmp_path / "v8" / "aws" / "vms.csv") in said.out.splitlines()
    assert all(Path(line).is_file() for line in said.out.splitlines())
    assert "offers left out" in said.err


def test_one_cloud_for_machines(cli: Callable[..., Any], tmp_path: Path) -> None:
    said = cli("catalog", "export", str(tmp_path), "--cloud", "verda", "--json")
    assert json.loads(said.out) == {
        "folder": str(tmp_path),
        "files": ["common/accelerators.csv", "common/metadata.csv", "verda/vms.csv"],
        "left_out": [],
    }


def test_a_place_that_cannot_be_written_is_an_error(cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "v8").write_text("a file")
    said = cli("catalog", "export", str(tmp_path / "v8"))
    assert said.code == 2 and "cannot be written" in said.err
