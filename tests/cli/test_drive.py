import os
import signal
import threading
import time

import pytest

from hexcloud import wiring
from hexcloud.adapters.run_dir import RunIsControlledError
from hexcloud.adapters.store import SqliteStore
from hexcloud.cli.drive import Interrupts, drive, hold, is_controlled
from hexcloud.cli.picture import Picture
from hexcloud.cli.watch import LineWatch
from hexcloud.domain.fleet import NodeStatus
from hexcloud.domain.run import RunRecord, RunState


def test_interrupts_are_counted_and_the_third_is_pythons_own() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.count == 2
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_run_is_held_by_one_process(store: SqliteStore, run: RunRecord) -> None:
    assert not is_controlled(run)
    with hold(run):
        assert is_controlled(run)
        with pytest.raises(RunIsControlledError), hold(run):
            pass
    assert not is_controlled(run)


def test_a_glance_at_the_lock_keeps_nobody_out(store: SqliteStore, run: RunRecord) -> None:
    glance = wiring.run_dir(run)
    glance.__enter__()
    threading.Timer(0.3, glance.__exit__, (None, None, None)).start()
    with hold(run):
        assert is_controlled(run)


def test_a_run_whose_folder_is_gone_is_controlled_by_nobody(run: RunRecord) -> None:
    assert not is_controlled(run)


class Impatient(LineWatch):
    """Presses Ctrl-C at the first look."""

    def look(self, picture: Picture) -> None:
        if not self.has_looked:
            os.kill(os.getpid(), signal.SIGINT)
        self.has_looked = True

    has_looked = False


def test_a_stopping_run_whose_machines_are_gone_is_seen_to_its_end(store: SqliteStore, run: RunRecord) -> None:
    from rich.console import Console

    now = time.time()
    late = {"clock_origin_wall_s": now, "clock_origin_run_s": now, "created_wall_s": now}
    stopping = run.model_copy(update={"state": RunState.STOPPING, "reason": "down", **late})
    store.save_run(stopping)
    with hold(stopping):
        state = drive(stopping, store, Impatient(Console(quiet=True)))
    assert state in {RunState.DONE, RunState.FAILED}
    assert all(node.status is NodeStatus.GONE for node in store.nodes(run.id))
