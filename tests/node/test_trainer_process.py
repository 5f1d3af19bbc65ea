import asyncio
import sys
import time
from pathlib import Path

import psutil
import pytest

from hexcloud.domain.errors import EngineError
from hexcloud.node.trainer_process import LAST_WORDS_S, MAX_RESTARTS, TrainerProcess, Way
from hexcloud.runtime.coordinator import Coordinator


def trainer_running(coordinator: Coordinator, directory: Path, code: str) -> TrainerProcess:
    return TrainerProcess(coordinator, Way("http://127.0.0.1:1", "token"), directory, (sys.executable, "-c", code))


def test_a_trainer_that_dies_is_restarted_and_given_up_in_the_end(coordinator: Coordinator, tmp_path: Path) -> None:
    trainer = trainer_running(coordinator, tmp_path, "open('starts', 'a').write('x'); raise SystemExit(3)")
    with pytest.raises(EngineError, match="died 4 times"):
        asyncio.run(trainer.run())
    assert (tmp_path / "starts").read_text() == "x" * (MAX_RESTARTS + 1)


def test_a_trainer_that_ends_after_the_run_is_not_restarted(coordinator: Coordinator, tmp_path: Path) -> None:
    coordinator.finish()
    asyncio.run(trainer_running(coordinator, tmp_path, "open('starts', 'a').write('x')").run())
    assert (tmp_path / "starts").read_text() == "x"


def test_a_trainer_gets_the_address_and_its_own_token_only(
    coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEXCLOUD_HOME")
    for name in ("HEXCLOUD_NODE_TOKEN", "HEXCLOUD_RUN_SECRET", "HEXCLOUD_CONTROLLER_TOKEN"):
        monkeypatch.setenv(name, name.lower())
    coordinator.finish()
    code = "import os; open('env', 'w').write(' '.join(sorted(k for k in os.environ if k.startswith('HEXCLOUD_'))))"
    asyncio.run(trainer_running(coordinator, tmp_path, code).run())
    assert (tmp_path / "env").read_text().split() == ["HEXCLOUD_COORDINATOR_URL", "HEXCLOUD_NODE_TOKEN"]


def _wait_for_text(path: Path) -> None:
    gives_up_at = time.monotonic() + 60
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < gives_up_at
        time.sleep(0.02)


@pytest.mark.parametrize("hears", [True, False])
def test_the_end_waits_for_last_words_but_not_for_long(coordinator: Coordinator, tmp_path: Path, hears: bool) -> None:
    ignore = "" if hears else "signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    code = f"import os, signal, time; {ignore} open('pid', 'w').write(str(os.getpid())); time.sleep(60)"

    async def scene() -> float:
        trainer = trainer_running(coordinator, tmp_path, code)
        running = asyncio.create_task(trainer.run())
        await asyncio.to_thread(_wait_for_text, tmp_path / "pid")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        begun_s = time.monotonic()
        await trainer.end()
        return time.monotonic() - begun_s

    took_s = asyncio.run(scene())
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))
    assert took_s < LAST_WORDS_S + 20, "it would have slept for a minute"
