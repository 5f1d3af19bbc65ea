import io
import time

from rich.console import Console

from hexcloud.adapters.store import SqliteStore
from hexcloud.cli.picture import take
from hexcloud.cli.watch import LineWatch, LiveWatch, watch_on
from hexcloud.domain.event import Event
from hexcloud.domain.run import RunRecord


def test_a_file_gets_a_line_now_and_then_and_the_events_that_matter(store: SqliteStore, run: RunRecord) -> None:
    file = io.StringIO()
    watch = watch_on(Console(file=file, width=80))
    assert isinstance(watch, LineWatch)
    with watch:
        watch.look(take(store, run.id))
        for kind in ("node_ready", "node_lost"):
            store.add_event(run.id, Event(at_s=1030.0, wall_s=time.time(), kind=kind, text=f"text of {kind}"))
        watch.look(take(store, run.id))
        watch.look(take(store, run.id))
    lines = file.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["run", "running", "node_lost:"]


def test_a_terminal_gets_the_live_view(store: SqliteStore, run: RunRecord) -> None:
    file = io.StringIO()
    watch = watch_on(Console(file=file, width=120, force_terminal=True, highlight=False))
    assert isinstance(watch, LiveWatch)
    with watch:
        watch.look(take(store, run.id))
    assert "main-1" in file.getvalue()
