import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hexcloud.adapters.store import SqliteStore
from hexcloud.adapters.store.schema import VERSION
from hexcloud.domain.errors import StoreError
from hexcloud.domain.event import Event
from hexcloud.domain.fleet import RunId
from hexcloud.domain.ledger import LedgerEntry
from hexcloud.domain.run import RunRecord

WRITER = """
import sys
from pathlib import Path
from hexcloud.adapters.store import SqliteStore
from hexcloud.domain.ledger import LedgerEntry
from hexcloud.domain.run import RunRecord

store = SqliteStore(Path(sys.argv[1]))
run = RunRecord.model_validate_json(sys.argv[2])
entry = LedgerEntry.model_validate_json(sys.argv[3])
while True:
    store.add_ledger(run.id, (entry,) * 50)
"""


def test_a_writer_killed_in_the_middle_leaves_whole_transactions(
    store: SqliteStore, run: RunRecord, entry: LedgerEntry
) -> None:
    store.save_run(run)
    seen = 0
    for _ in range(2):
        argv = [sys.executable, "-c", WRITER, str(store.path), run.model_dump_json(), entry.model_dump_json()]
        with subprocess.Popen(argv) as writer:
            give_up = time.monotonic() + 60
            while len(store.ledger(run.id)) < seen + 500 and time.monotonic() < give_up:
                time.sleep(0.002)
            os.kill(writer.pid, signal.SIGKILL)
        store.close()
        with sqlite3.connect(store.path) as raw:
            assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        raw.close()
        count = len(SqliteStore(store.path).ledger(run.id))
        assert count >= seen + 500
        assert count % 50 == 0
        seen = count


def test_a_new_file_that_another_process_is_just_making_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "hexcloud.db"
    maker = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    maker.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.3, maker.rollback)
    timer.start()
    store = SqliteStore(path)
    timer.join()
    maker.close()
    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    raw.close()
    store.close()


def test_a_reader_in_another_process_sees_what_was_written(store: SqliteStore, run: RunRecord) -> None:
    store.save_run(run)
    code = (
        "import sys; from pathlib import Path; from hexcloud.adapters.store import SqliteStore;"
        "print(SqliteStore(Path(sys.argv[1])).runs()[0].id)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(store.path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == run.id


def test_a_reader_is_not_stopped_by_a_writer_in_its_transaction(store: SqliteStore, run: RunRecord) -> None:
    store.save_run(run)
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert store.run(run.id) == run, "a read that waited would end in `database is locked`"
    other.close()


def test_writers_of_many_threads_queue(store: SqliteStore, run: RunRecord) -> None:
    store.save_run(run)
    failures: list[StoreError] = []

    def write(kind: str) -> None:
        try:
            for _ in range(10):
                store.add_event(run.id, Event(at_s=0.0, wall_s=0.0, kind=kind, text=""))
        except StoreError as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(f"kind{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [number for number, _ in store.events(run.id)] == list(range(1, 41))


def test_the_file_is_in_wal_mode(store: SqliteStore) -> None:
    raw = sqlite3.connect(store.path)
    assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    raw.close()


def test_a_file_of_a_newer_schema_is_refused_with_what_to_do(store: SqliteStore) -> None:
    raw = sqlite3.connect(store.path)
    raw.execute("UPDATE schema SET version = ?", (VERSION + 1,))
    raw.commit()
    raw.close()
    with pytest.raises(StoreError, match=r"newer hexcloud.*upgrade"):
        SqliteStore(store.path)


def test_a_file_that_is_no_database_is_a_store_error(tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("This is not a database. " * 100)
    with pytest.raises(StoreError, match=r"text\.db"):
        SqliteStore(path)


def test_a_folder_that_cannot_be_made_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError):
        SqliteStore(tmp_path / "file" / "hexcloud.db")


def test_a_row_that_cannot_be_read_is_a_store_error(store: SqliteStore, run: RunRecord) -> None:
    store.save_run(run)
    raw = sqlite3.connect(store.path)
    raw.execute("""UPDATE runs SET body = '{"id": 3}'""")
    raw.commit()
    raw.close()
    with pytest.raises(StoreError):
        store.run(RunId(run.id))


def test_a_file_that_vanished_is_a_store_error(store: SqliteStore, run: RunRecord) -> None:
    store.close()
    for file in store.path.parent.iterdir():
        file.unlink()
    with pytest.raises(StoreError):
        store.save_run(run)
