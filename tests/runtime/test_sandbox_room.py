import json
import os
import subprocess
import sys

from hexcloud.runtime import sandbox_room
from hexcloud.runtime.sandbox_room import NO_ROOM, Settings


def build(settings: Settings) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", sandbox_room.__file__, json.dumps(settings)]
    return subprocess.run(command, pass_fds=(settings["leash"],), capture_output=True, text=True, check=False)


def settings(root: str, leash: int, program: str) -> Settings:
    return Settings(
        isolation="full",
        root=root,
        readable=sorted({"/usr", "/lib", "/lib64", sys.prefix, sys.base_prefix}),
        limits={"RLIMIT_CORE": 0},
        memory=1 << 30,
        disk_mib=1,
        leash=leash,
        environment={"ONE": "1"},
        program=program,
    )


def test_the_program_runs_with_the_environment_it_was_given_and_its_code_is_passed_on(tmp_path: object) -> None:
    reading, writing = os.pipe()
    done = build(settings(str(tmp_path), reading, "import os, sys; print(dict(os.environ)); sys.exit(7)"))
    assert (done.returncode, "'ONE': '1'" in done.stdout) == (7, True)
    done = build(settings(str(tmp_path), reading, "import os; os.kill(os.getpid(), 11)"))
    assert done.returncode == 128 + 11
    os.close(writing)
    os.close(reading)


def test_it_ends_when_the_leash_is_let_go(tmp_path: object) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    assert build(settings(str(tmp_path), reading, "import time; time.sleep(600)")).returncode == 128 + 9
    os.close(reading)


def test_a_room_that_cannot_be_built_has_a_code_and_a_reason() -> None:
    reading, writing = os.pipe()
    done = build(settings("/no/such/folder", reading, ""))
    assert done.returncode == NO_ROOM and "/no/such/folder" in done.stderr
    os.close(writing)
    os.close(reading)
