"""BackOff: how long to keep away from what refused us: longer each time, and shorter again as time passes in peace."""

import math
from dataclasses import dataclass, field

_MOST_LEVEL = 64.0


@dataclass(frozen=True)
class _Refused:
    level: float
    """Refusals in a row that are not forgotten yet."""
    at_s: float
    wait_s: float


@dataclass
class BackOff:
    """Waits per scope: a pool, an account limit, an account, a machine. All moments come from one clock, seconds."""

    first_s: float
    """After the first refusal; every further one doubles it."""
    most_s: float
    forget_s: float
    """So long without a refusal takes one of them back."""
    _refused: dict[str, _Refused] = field(default_factory=dict)

    def refuse(self, scope: str, at_s: float) -> float:
        """Count a refusal and return the seconds to keep away."""
        level = self.level(scope, at_s) + 1.0
        wait_s = min(self.first_s * math.pow(2.0, min(level, _MOST_LEVEL) - 1.0), self.most_s)
        self._refused[scope] = _Refused(level, at_s, wait_s)
        return wait_s

    def is_waiting(self, scope: str, at_s: float) -> bool:
        """Is it too early to ask again?"""
        last = self._refused.get(scope)
        return last is not None and at_s < last.at_s + last.wait_s

    def level(self, scope: str, at_s: float) -> float:
        """Return how many refusals still count."""
        last = self._refused.get(scope)
        return 0.0 if last is None else max(0.0, last.level - max(0.0, at_s - last.at_s) / self.forget_s)

    def forgive(self, scope: str) -> None:
        """Forget a scope: it gave what was asked."""
        self._refused.pop(scope, None)
