"""Calls that never come back hold nobody."""

import subprocess
import sys
import time
from threading import BoundedSemaphore, Event

import pytest

from hexcloud.adapters.provisioners.sky_patience import Patience, begin
from hexcloud.domain.errors import RateLimitError


def test_an_answer_and_an_error_come_as_they_are_and_are_not_kept() -> None:
    patience, counted = Patience(), iter(range(9))
    assert [patience.wait("count", 5.0, lambda: next(counted)) for _ in range(2)] == [0, 1]
    for _ in range(2):
        with pytest.raises(TimeoutError, match="its own"):
            patience.wait("late", 5.0, refuse)


def refuse() -> None:
    raise TimeoutError("its own")


def test_what_hangs_is_left_and_asked_only_once_until_it_answers() -> None:
    patience, answer, asked = Patience(), Event(), []

    def hang() -> str:
        asked.append(1)
        answer.wait()
        return "at last"

    for _ in range(3):
        with pytest.raises(RateLimitError, match="sky api info"):
            patience.wait("has", 0.01, hang)
    answer.set()
    assert patience.wait("has", 5.0, hang) == "at last" and len(asked) == 1


def test_others_wait_for_room_and_what_waits_can_be_called_off() -> None:
    room, answer, ran = BoundedSemaphore(1), Event(), []
    first = begin(answer.wait, room)
    while not first.running():
        time.sleep(0.001)
    second = begin(lambda: ran.append(1), room)
    assert second.cancel()
    answer.set()
    assert first.result(5.0) and begin(lambda: "third", room).result(5.0) == "third" and not ran


def test_a_process_ends_though_a_call_of_it_hangs() -> None:
    hangs = "from threading import Event\nfrom hexcloud.adapters.provisioners.sky_patience import begin\n"
    subprocess.run([sys.executable, "-c", hangs + "begin(Event().wait)"], check=True, timeout=60)
