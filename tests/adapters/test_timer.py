import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from hexcloud.adapters.clock import RunClock
from hexcloud.adapters.timer import RunTimer, read_schedule
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.policy import ReplanSchedule

MONDAY_NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def fast_clock(scale: float) -> RunClock:
    return RunClock(MONDAY_NOON.timestamp(), time.time(), scale)


def fires(schedule: ReplanSchedule, count: int) -> list[datetime]:
    trigger = read_schedule(schedule, MONDAY_NOON.timestamp())
    found: list[datetime] = []
    previous = None
    for _ in range(count):
        previous = trigger.get_next_fire_time(previous, previous or MONDAY_NOON)
        found.append(previous)
    return found


def test_an_interval_fires_first_after_one_interval() -> None:
    assert fires(ReplanSchedule(every="10m"), 2) == [MONDAY_NOON + timedelta(minutes=m) for m in (10, 20)]


def test_a_crontab_line_wins_over_an_interval() -> None:
    hourly = fires(ReplanSchedule(every="10m", cron="30 * * * *"), 2)
    assert hourly == [MONDAY_NOON + timedelta(minutes=m) for m in (30, 90)]


@pytest.mark.parametrize(
    ("weekdays", "names"),
    [
        ("0", ["Sun", "Sun"]),
        ("7", ["Sun", "Sun"]),
        ("1,3", ["Wed", "Mon"]),
        ("0-2", ["Tue", "Sun"]),
        ("fri", ["Fri", "Fri"]),
    ],
)
def test_weekday_numbers_count_from_sunday_as_in_crontab(weekdays: str, names: list[str]) -> None:
    found = fires(ReplanSchedule(cron=f"0 9 * * {weekdays}"), 2)
    assert [moment.strftime("%a") for moment in found] == names


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        (ReplanSchedule(every="soon"), "soon"),
        (ReplanSchedule(every="0m"), "0m"),
        (ReplanSchedule(every="99999999999d"), "99999999999d"),
        (ReplanSchedule(every=None), "give one of"),
        (ReplanSchedule(cron="* * *"), r"\* \* \*"),
        (ReplanSchedule(cron="61 * * * *"), "61"),
        (ReplanSchedule(cron="* * * * 9"), "9"),
        (ReplanSchedule(cron="* * * * 5-2"), "5-2"),
    ],
)
def test_a_schedule_that_cannot_be_read_names_its_text(schedule: ReplanSchedule, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        RunTimer(fast_clock(1.0)).start(schedule, lambda: None)


def test_ten_run_minutes_pass_in_a_fraction_of_a_wall_second() -> None:
    clock = fast_clock(6000.0)
    moments: list[float] = []
    third = threading.Event()

    def callback() -> None:
        moments.append(clock.now_s() - MONDAY_NOON.timestamp())
        if len(moments) == 3:
            third.set()

    timer = RunTimer(clock)
    timer.start(ReplanSchedule(every="10m"), callback)
    assert third.wait(10)
    timer.stop()
    assert moments[0] >= 600
    assert moments[2] >= 1800


def test_firings_missed_during_a_slow_callback_are_merged() -> None:
    begun = threading.Semaphore(0)
    go_on = threading.Event()
    calls: list[float] = []

    def callback() -> None:
        calls.append(time.monotonic())
        begun.release()
        go_on.wait(10)

    timer = RunTimer(fast_clock(6000.0))
    timer.start(ReplanSchedule(every="2m"), callback)
    assert begun.acquire(timeout=10)
    time.sleep(0.3)
    assert len(calls) == 1
    released_s = time.monotonic()
    go_on.set()
    assert begun.acquire(timeout=10)
    timer.stop()
    # One for the 15 that were missed, and those of the time since, which is short where nothing else runs.
    assert 2 <= len(calls) <= 3 + (calls[-1] - released_s) / 0.02


def test_nothing_is_called_after_stop() -> None:
    calls: list[int] = []
    timer = RunTimer(fast_clock(60_000.0))
    timer.start(ReplanSchedule(every="10m"), lambda: calls.append(1))
    time.sleep(0.1)
    timer.stop()
    count = len(calls)
    time.sleep(0.1)
    assert len(calls) == count
    timer.stop()
