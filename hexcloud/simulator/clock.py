"""VirtualClock: time that passes only when somebody sleeps."""


class VirtualClock:
    """Implements ports.Clock. Run time passes `scale` times as fast as wall time."""

    def __init__(self, run_s: float = 1_767_225_600.0, wall_s: float = 1_767_225_600.0, scale: float = 1.0) -> None:
        self._origin_run_s, self._origin_wall_s = run_s, wall_s
        self._wall_s = wall_s
        self.scale = scale

    def now_s(self) -> float:
        """Return run-clock seconds since the epoch."""
        return self.to_run(self._wall_s)

    def wall_s(self) -> float:
        """Return virtual wall seconds since the epoch."""
        return self._wall_s

    def sleep(self, wall_s: float) -> None:
        """Jump ahead."""
        self._wall_s += wall_s

    def to_run(self, wall_s: float) -> float:
        """Return the run-clock moment of a wall-clock moment."""
        return self._origin_run_s + (wall_s - self._origin_wall_s) * self.scale

    def to_wall(self, run_s: float) -> float:
        """Return the wall-clock moment of a run-clock moment."""
        return self._origin_wall_s + (run_s - self._origin_run_s) / self.scale
