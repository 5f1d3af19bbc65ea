import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hexcloud.domain.stored import head_object
from hexcloud.node.mirror_thread import MirrorThread, Tidings
from tests.node.test_mirror import Head
from tests.node.test_restore import made


class Heard:
    """What a mirror's thread told."""

    def __init__(self) -> None:
        self.version, self.trouble = -2, ""
        self.delivered, self.superseded = threading.Event(), threading.Event()

    def stored(self, version: int, trouble: str) -> None:
        self.version, self.trouble = version, trouble


Start = Callable[[Head, Heard], MirrorThread]


@pytest.fixture
def thread_of() -> Iterator[Start]:
    """Start the thread of a head's mirror; it ends with the test."""
    started: list[MirrorThread] = []

    def start(head: Head, heard: Heard) -> MirrorThread:
        tidings = Tidings(heard.stored, heard.delivered.set, heard.superseded.set)
        started.append(MirrorThread(head.mirror, tidings, look_s=0.02))
        started[0].start()
        return started[0]

    yield start
    for thread in started:
        thread.stop()


@pytest.fixture
def head(tmp_path: Path) -> Head:
    return Head(tmp_path)


def until(is_reached: Callable[[], bool], within_s: float = 60.0) -> None:
    gives_up_at = time.monotonic() + within_s
    while not is_reached():
        assert time.monotonic() < gives_up_at
        time.sleep(0.005)


def test_what_is_new_is_stored_by_itself(head: Head, thread_of: Start) -> None:
    heard = Heard()
    thread_of(head, heard)
    made(head.run_dir, 0, 20)
    until(lambda: heard.version == 20)


def test_a_store_that_is_away_is_told_and_asked_again(head: Head, thread_of: Start) -> None:
    heard = Heard()
    head.bucket.is_away = True
    made(head.run_dir, 0, 20)
    thread_of(head, heard)
    until(lambda: "the store is away" in heard.trouble)
    assert heard.version == -1
    head.bucket.is_away = False
    until(lambda: heard.version == 20 and heard.trouble == "")


def test_catching_up_waits_for_what_there_is_now(head: Head, thread_of: Start) -> None:
    heard = Heard()
    thread = thread_of(head, heard)
    for version in (20, 40, 60):
        made(head.run_dir, 0, version)
        assert thread.catch_up(within_s=60.0)
        assert head.checkpoints()[0] == f"checkpoints/0-{version}"


def test_catching_up_gives_up_in_time(head: Head, thread_of: Start) -> None:
    heard = Heard()
    head.bucket.is_away = True
    made(head.run_dir, 0, 20)
    thread = thread_of(head, heard)
    began = time.monotonic()
    assert not thread.catch_up(within_s=0.2)
    assert time.monotonic() - began < 10.0


def test_the_end_and_the_loss_of_the_run_are_told(head: Head, thread_of: Start) -> None:
    heard = Heard()
    thread = thread_of(head, heard)
    head.mirror.is_over = True
    assert thread.catch_up(within_s=60.0)
    assert heard.delivered.wait(60.0) and not heard.superseded.is_set()
    head.bucket.put(head_object(9), b"another")
    made(head.run_dir, 0, 20)
    assert heard.superseded.wait(60.0)
    assert head.checkpoints() == []
    began = time.monotonic()
    assert not thread.catch_up(within_s=30.0), "nobody waits for a head that lost the run"
    assert time.monotonic() - began < 20.0


def test_nothing_is_stored_any_more_once_it_is_told_to_stop(head: Head, thread_of: Start) -> None:
    heard = Heard()
    thread = thread_of(head, heard)
    assert thread.catch_up(within_s=60.0)
    thread.stop()
    until(lambda: not any(one.name == "mirror" for one in threading.enumerate()))  # a round goes on to its end
    made(head.run_dir, 0, 20)
    assert not thread.catch_up(within_s=0.1)
    assert head.checkpoints() == []
