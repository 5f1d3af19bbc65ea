import os
import socket
import time
from pathlib import Path
from typing import Protocol

import psutil
import pytest

from hexcloud.domain.errors import ConfigError
from hexcloud.domain.task import Isolation
from hexcloud.runtime.sandbox import Limits, Sandbox, Verdict

BRIEF = Limits(wall_s=120.0, cpu_s=2, memory_mib=256, file_mib=1, disk_mib=4, processes=8)


class Judge(Protocol):
    def __call__(self, body: str, limits: Limits = BRIEF) -> Verdict: ...


@pytest.fixture
def judge() -> Judge:
    """Run a body of `verify` once in a room of its own, and check that nothing is left of it."""

    def run(body: str, limits: Limits = BRIEF) -> Verdict:
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        before = psutil.Process().children(recursive=True)
        with Sandbox(f"def verify(response, answer):\n{lines}", limits, Isolation.FULL) as sandbox:
            verdict = sandbox.verify("4 = 2 + 2", "4")
            assert sandbox.is_alive == (verdict.fault == "" or ": " in verdict.fault)
        assert set(psutil.Process().children(recursive=True)) <= set(before)
        return verdict

    return run


def test_it_judges_the_response_by_the_answer(judge: Judge) -> None:
    assert judge("return response.startswith(answer)") == Verdict(1.0)
    assert judge("return 0.25") == Verdict(0.25)


def test_it_serves_many_responses_and_keeps_what_it_imported() -> None:
    source = "seen = []\ndef verify(response, answer):\n    seen.append(response)\n    return len(seen)"
    with Sandbox(source, BRIEF, Isolation.FULL) as sandbox:
        assert [sandbox.verify("x", "").reward for _ in range(3)] == [1.0, 2.0, 3.0]


def test_a_long_response_arrives_whole() -> None:
    with Sandbox("def verify(response, answer):\n    return len(response)", BRIEF, Isolation.FULL) as sandbox:
        assert sandbox.verify("x" * 1_000_000, "").reward == 1_000_000


def test_a_verifier_that_raises_is_a_fault_with_its_reason(judge: Judge) -> None:
    assert judge("return 1 / 0") == Verdict(0.0, "ZeroDivisionError: division by zero")
    assert judge("return 'x' * 2").fault.startswith("ValueError: ")


def test_a_reward_that_is_no_number_is_a_fault(judge: Judge) -> None:
    assert judge("return float('nan')") == Verdict(0.0, "reward nan is no finite number: it must be a float")


def test_a_verifier_that_dies_is_a_fault(judge: Judge) -> None:
    assert judge("import os\nos._exit(3)") == Verdict(0.0, "ended with code 3")
    assert judge("import ctypes\nctypes.string_at(0)") == Verdict(0.0, "ended with code 139")


def test_a_source_without_verify_is_refused_with_its_reason() -> None:
    with pytest.raises(ConfigError, match="KeyError: 'verify'"):
        Sandbox("x = 1", BRIEF, Isolation.FULL)
    with pytest.raises(ConfigError, match="SyntaxError"):
        Sandbox("def", BRIEF, Isolation.FULL)


def test_it_has_no_network_not_even_loopback(judge: Judge) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        socket.create_connection(("127.0.0.1", port)).close()  # it is there for others
        fault = judge(f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 5)").fault
    assert fault.startswith("OSError: [Errno 101] Network is unreachable")


def test_it_sees_no_secret_of_ours(judge: Judge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEXCLOUD_NODE_TOKEN", "hunter2")
    secret = tmp_path / "token"
    secret.write_text("hunter2")
    assert judge("import os\nreturn 'HEXCLOUD_NODE_TOKEN' in os.environ") == Verdict(0.0)
    assert judge(f"open({str(secret)!r}).read()").fault.startswith("FileNotFoundError")
    assert judge(f"open('/proc/{os.getpid()}/environ').read()").fault.startswith("FileNotFoundError")
    assert judge(f"import os\nos.kill({os.getpid()}, 0)").fault.startswith("ProcessLookupError")


def test_it_starts_in_an_empty_folder_and_can_change_nothing_else(judge: Judge) -> None:
    assert judge("import os\nreturn len(os.listdir('.'))") == Verdict(0.0)
    assert judge("open('note', 'w').write('x')\nreturn 1") == Verdict(1.0)
    assert judge("open('/usr/note', 'w')").fault.startswith(("OSError: [Errno 30]", "PermissionError"))


def test_it_is_nobody_and_cannot_become_root(judge: Judge) -> None:
    assert judge("import os\nreturn os.getuid() >= 60000 and os.geteuid() >= 60000") == Verdict(1.0)
    assert judge("import os\nos.setuid(0)").fault.startswith(("PermissionError", "OSError"))


def test_a_fork_bomb_meets_the_process_limit(judge: Judge) -> None:
    verdict = judge("import os\nwhile True:\n    if os.fork() == 0:\n        import time; time.sleep(60)")
    assert verdict.fault.startswith("BlockingIOError")


def test_what_it_left_running_ends_with_it(judge: Judge) -> None:
    body = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\nreturn os.getuid()"
    uid = judge(body).reward
    # The fixture found none of our children; this one would have been nobody's. Rooms of other tests have other users.
    assert not [one for one in psutil.process_iter(["uids"]) if one.info["uids"] and one.info["uids"].real == uid]


def test_a_memory_bomb_is_stopped(judge: Judge) -> None:
    assert judge("x = 'x' * (1 << 30)").fault.startswith("MemoryError")


CHILDREN = """
import os, time
held = bytearray(b"x") * ({own} << 20)
ready, word = os.pipe()
for _ in range(4):
    if os.fork() == 0:
        mine = []
        for _ in range({each} // 4):
            mine.append(bytearray(b"x") * (4 << 20))
            time.sleep(0.02)
        os.write(word, b"x")
        time.sleep(60)
came = 0
while came < 4: came += len(os.read(ready, 4))
time.sleep(0.3)
return 1
"""


def test_memory_is_counted_over_all_processes_together(judge: Judge) -> None:
    assert judge(CHILDREN.format(own=0, each=30)) == Verdict(1.0), "120 MiB and five interpreters"
    assert judge(CHILDREN.format(own=0, each=120)).fault == "killed (memory or CPU time)"


def test_what_children_share_with_their_parent_counts_once(judge: Judge) -> None:
    assert judge(CHILDREN.format(own=120, each=4)) == Verdict(1.0)


def test_starting_programs_from_a_large_process_is_no_excess(judge: Judge) -> None:
    body = "import subprocess\nheld = bytearray(b'x') * (150 << 20)\n"
    body += "for _ in range(200): subprocess.run(['/bin/true'], check=True)\nreturn 1"
    assert judge(body, Limits(wall_s=60.0, memory_mib=256)) == Verdict(1.0)


def test_an_endless_loop_is_stopped_by_its_cpu_time(judge: Judge) -> None:
    assert judge("while True: pass").fault == "killed (memory or CPU time)"


def test_a_sleeper_is_stopped_by_the_clock(judge: Judge) -> None:
    begun_s = time.monotonic()
    verdict = judge("import time\ntime.sleep(600)", Limits(wall_s=0.5))
    assert verdict == Verdict(0.0, "no verdict within 0.5 s")
    assert time.monotonic() - begun_s < 60


def test_a_large_file_and_a_full_disk_are_refused(judge: Judge) -> None:
    assert judge("open('a', 'wb').write(b'x' * (2 << 20))").fault.startswith("OSError: [Errno 27]")
    crowded = Limits(wall_s=20.0, disk_mib=4)
    many = "for i in range(9):\n    with open(str(i), 'wb') as f: f.write(b'x' * 1000000)"
    assert judge(many, crowded).fault.startswith("OSError: [Errno 28]")


def test_huge_output_goes_nowhere_and_huge_words_are_cut(judge: Judge) -> None:
    assert judge("for _ in range(100): print('x' * 1000000)\nreturn 1", Limits()) == Verdict(1.0)
    assert len(judge("raise ValueError('x' * 10000000)").fault) == 500


def test_an_answer_that_never_ends_is_cut(judge: Judge) -> None:
    write = "    try:\n        while True: os.write(fd, b'x' * 65536)\n    except OSError: pass"
    flood = f"import os\nfor fd in range(3, 9):\n{write}"
    assert judge(flood) == Verdict(0.0, "an answer of over 65536 bytes")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("b'{\"reward\": 1' + b'0' * 400 + b'}'", "OverflowError: its verdict cannot be read"),
        ("b'{\"reward\": 1' + b'0' * 9000 + b'}'", "an answer that is no JSON"),
        ("b'[' * 50000", "an answer that is no JSON"),
        ("b'{\"reward\": 1e999}'", "reward inf is no finite number: it must be a float"),
        (r"b'{\"fault\": \"\\ud800: x\"}'", "?: x"),
    ],
)
def test_a_response_that_writes_the_verdict_itself_cannot_raise_out_of_the_room(line: str, fault: str) -> None:
    write = f"    try: os.write(fd, {line} + b'\\n')\n        except OSError: pass"
    source = f"import os\ndef verify(response, answer):\n    for fd in range(3, 9):\n    {write}\n    return 1.0"
    with Sandbox(source, BRIEF, Isolation.FULL) as sandbox:
        assert sandbox.verify("", "") == Verdict(0.0, fault)


def test_a_room_that_ends_as_if_there_were_none_is_a_fault_too(judge: Judge) -> None:
    assert judge("import os\nos._exit(97)") == Verdict(0.0, "ended with code 97")


def test_limits_alone_leave_the_network_and_still_end_everything() -> None:
    body = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\nreturn 1"
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    try:
        sandbox = Sandbox(f"def verify(response, answer):\n{lines}", BRIEF, Isolation.LIMITS)
    except ConfigError as error:
        assert "`isolation: full`" in str(error), "what is refused here is what was asked for"
        pytest.skip(str(error))
    with sandbox:
        assert sandbox.verify("", "") == Verdict(1.0)
    assert psutil.Process().children(recursive=True) == []
