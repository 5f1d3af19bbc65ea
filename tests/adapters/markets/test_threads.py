"""Many regions at once: each answered or missing, in bounded time."""

import threading
import time

import pytest

from hexcloud.adapters.markets.threads import each


def test_every_name_is_answered_once_by_at_most_so_many_threads() -> None:
    running, most, lock = set(), [0], threading.Lock()

    def read(name: str) -> str:
        with lock:
            running.add(name)
            most[0] = max(most[0], len(running))
        time.sleep(0.01)
        with lock:
            running.discard(name)
        return name.upper()

    names = tuple("abcdefgh")
    assert dict(each(names, read, 3, 60)) == {name: name.upper() for name in names}
    assert most[0] <= 3


def test_a_name_that_never_ends_is_missing_and_the_others_come_first() -> None:
    free = threading.Event()

    def read(name: str) -> str:
        if name == "hangs":
            free.wait()
        return name

    began = time.monotonic()
    *others, last = each(("hangs", "a", "b"), read, 2, 0.3)
    assert sorted(others) == [("a", "a"), ("b", "b")] and last == ("hangs", None)
    assert time.monotonic() - began < 10
    free.set()


def test_names_that_hang_in_every_thread_take_nobodys_turn() -> None:
    free = threading.Event()

    def read(name: str) -> str:
        if name.startswith("hangs"):
            free.wait()
        return name

    answers = dict(each(("hangs1", "hangs2", "a", "b", "c"), read, 2, 0.3))
    free.set()
    assert answers == {"hangs1": None, "hangs2": None, "a": "a", "b": "b", "c": "c"}


def test_what_comes_too_late_is_no_second_answer() -> None:
    over = threading.Event()

    def read(name: str) -> str:
        if name == "late":
            over.wait()
        over.set()
        time.sleep(0.05)
        return name

    answers = list(each(("late", "a", "b"), read, 1, 0.5))
    assert answers == [("late", None), ("a", "a"), ("b", "b")]


def test_a_fault_of_our_own_is_one_missing_answer_a_traceback_and_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", told.append)

    def read(name: str) -> int:
        return int(name)

    began = time.monotonic()
    assert dict(each(("x", "1", "2"), read, 1, 60)) == {"x": None, "1": 1, "2": 2}
    assert time.monotonic() - began < 10
    for thread in threading.enumerate():
        if thread.name == "aws-x":
            thread.join()
    assert [fault.exc_type for fault in told] == [ValueError]


def test_no_names_are_no_answers() -> None:
    assert list(each((), str, 8, 60)) == []


def test_whoever_stops_listening_stops_the_reading() -> None:
    read: list[str] = []

    def slowly(name: str) -> str:
        time.sleep(0.05)
        read.append(name)
        return name

    answers = each(tuple("abcdefghij"), slowly, 1, 60)
    next(answers)
    answers.close()  # type: ignore[attr-defined]
    time.sleep(0.3)
    assert len(read) <= 3
