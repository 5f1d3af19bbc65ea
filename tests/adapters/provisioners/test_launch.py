import json
import os
import subprocess
import sys
from pathlib import Path

from hexcloud.adapters.provisioners import launch


def run(directory: Path, *program: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-I", "-S", launch.__file__, str(directory), *program])


def test_the_process_becomes_the_program_in_the_directory(tmp_path: Path) -> None:
    with run(tmp_path, "sh", "-c", "echo $$ > me") as process:
        pass
    assert process.returncode == 0
    assert int((tmp_path / "me").read_text()) == process.pid
    assert json.loads((tmp_path / launch.RECORD).read_text()) == {"pid": process.pid}


def test_of_many_processes_started_at_once_one_becomes_the_node(tmp_path: Path) -> None:
    processes = [run(tmp_path, "sh", "-c", "echo $$ >> me") for _ in range(6)]
    assert [process.wait() for process in processes] == [0] * 6
    (me,) = (tmp_path / "me").read_text().split()
    assert json.loads((tmp_path / launch.RECORD).read_text()) == {"pid": int(me)}
    assert sorted(os.listdir(tmp_path)) == ["me", launch.RECORD]


def test_nothing_starts_in_a_closed_directory(tmp_path: Path) -> None:
    assert launch.claim(str(tmp_path), launch.CLOSED)
    assert not launch.claim(str(tmp_path), 7)
    with run(tmp_path, "touch", "began") as process:
        pass
    assert process.returncode == 0
    assert not (tmp_path / "began").exists()
