"""RunClock: the run clock as a straight line over the wall clock, the same before and after a restart."""

import time

from hexcloud.domain.run import RunRecord


class RunClock:
    """Implements ports.Clock: `run = origin_run_s + (wall - origin_wall_s) * scale`."""

    def __init__(self, origin_run_s: float, origin_wall_s: float, scale: float = 1.0) -> None:
        if not scale > 0:
            raise ValueError(f"clock scale {scale} is not positive")
        self._origin_run_s = origin_run_s
        self._origin_wall_s = origin_wall_s
        self._scale = scale

    @classmethod
    def of(cls, run: RunRecord) -> "RunClock":
        """Return the clock that the stored run began with."""
        return cls(run.clock_origin_run_s, run.clock_origin_wall_s, run.clock_scale)

    def now_s(self) -> float:
        """Return run-clock seconds since the epoch."""
        return self.run_at(self.wall_s())

    def wall_s(self) -> float:
        """Return real seconds since the epoch."""
        return time.time()

    def sleep(self, wall_s: float) -> None:
        """Wait for real seconds; a negative span is over already."""
        time.sleep(max(0.0, wall_s))

    def run_at(self, wall_s: float) -> float:
        """Return the run-clock moment of a wall moment, seconds since the epoch."""
        return self._origin_run_s + (wall_s - self._origin_wall_s) * self._scale

    def wall_at(self, run_s: float) -> float:
        """Return the wall moment of a run-clock moment, seconds since the epoch."""
        return self._origin_wall_s + (run_s - self._origin_run_s) / self._scale
