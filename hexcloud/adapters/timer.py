"""RunTimer: calls back on a schedule of the run clock. The only file that knows APScheduler."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from hexcloud.adapters.clock import RunClock
from hexcloud.domain.duration import parse_duration
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.policy import ReplanSchedule

_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""A crontab counts from Sunday and calls it 0 or 7; APScheduler counts from Monday, so names are safer."""


class RunTimer:
    """Implements ports.Timer. Firings missed while a callback runs or the machine sleeps are merged into one."""

    def __init__(self, clock: RunClock) -> None:
        self._clock = clock
        self._scheduler: BackgroundScheduler | None = None

    def start(self, schedule: ReplanSchedule, callback: Callable[[], None]) -> None:
        """Begin to call back, from a thread of its own. Raises ConfigError for a schedule that cannot be read."""
        self.stop()
        trigger = _OnRunClock(read_schedule(schedule, self._clock.now_s()), self._clock)
        scheduler = BackgroundScheduler(timezone=UTC)
        scheduler.add_job(callback, trigger, coalesce=True, max_instances=1, misfire_grace_time=None)
        scheduler.start()
        self._scheduler = scheduler

    def stop(self) -> None:
        """End. Waits for a callback that runs now; none runs afterwards. Not to be called by the callback itself."""
        if self._scheduler is not None:
            self._scheduler.shutdown(wait=True)
            self._scheduler = None


def read_schedule(schedule: ReplanSchedule, now_s: float) -> BaseTrigger:
    """Return APScheduler's trigger over run-clock datetimes. Raises ConfigError that names the bad text.

    In a crontab line with both a day of month and a weekday, both must match.
    """
    if schedule.cron is not None:
        return _cron(schedule.cron)
    if schedule.every is not None:
        try:
            interval = timedelta(seconds=parse_duration(schedule.every))
        except OverflowError as error:
            raise ConfigError(f"replan.every: {schedule.every!r} is too long an interval") from error
        except ConfigError as error:
            raise ConfigError(f"replan.every: {error}") from error
        return IntervalTrigger(seconds=interval.total_seconds(), start_date=_datetime(now_s) + interval, timezone=UTC)
    raise ConfigError("replan: give one of every (such as 10m) and cron (five fields, UTC)")


class _OnRunClock(BaseTrigger):  # type: ignore[misc]
    """Asks a trigger when it fires next on the run clock, and answers with the wall moment of that."""

    def __init__(self, trigger: BaseTrigger, clock: RunClock) -> None:
        self._trigger = trigger
        self._clock = clock

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """Return the wall moment of the next firing (called by APScheduler)."""
        previous = previous_fire_time and self._run(previous_fire_time)
        fire = self._trigger.get_next_fire_time(previous, self._run(now))
        return fire and _datetime(self._clock.wall_at(fire.timestamp()))

    def _run(self, wall: datetime) -> datetime:
        return _datetime(self._clock.run_at(wall.timestamp()))


def _cron(line: str) -> BaseTrigger:
    fields = line.split()
    if len(fields) != 5:
        raise ConfigError(f"replan.cron: {line!r} has {len(fields)} fields; a crontab line has five")
    try:
        weekdays = ",".join(_weekday(part) for part in fields[4].split(","))
        return CronTrigger.from_crontab(" ".join([*fields[:4], weekdays]), timezone=UTC)
    except (ValueError, IndexError) as error:
        raise ConfigError(f"replan.cron: {line!r} cannot be read: {error}") from error


def _weekday(part: str) -> str:
    days, _, step = part.partition("/")
    first, _, last = days.partition("-")
    if not first.isdigit():
        return part
    numbers = range(int(first), int(last or first) + 1, int(step or 1))
    if not numbers:
        raise ValueError(f"weekday {part} is an empty range")
    return ",".join(_WEEKDAYS[number] for number in numbers)


def _datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
