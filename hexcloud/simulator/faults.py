"""Faults: errors that a call raises before or after its effect, by plan. A crash of the controller is one of them."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class Crash(BaseException):
    """The controller's process dies here. Not an Exception, so that nothing can catch it by accident."""


@dataclass(frozen=True)
class Fault:
    """The `nth` call (from 0) of an operation raises; `operation` "" counts calls of all operations together."""

    nth: int
    error: BaseException
    operation: str = ""
    after: bool = False
    """True: the call has its effect and the caller never learns of it."""


@dataclass(frozen=True)
class Outage:
    """Between two moments, run clock, a region's own calls all fail; its machines go on."""

    place: str
    """`cloud/region`."""
    from_s: float
    to_s: float


class Faults:
    """A plan of faults, and the count of calls so far."""

    def __init__(self, plan: Iterable[Fault] = ()) -> None:
        self._plan = {(fault.operation, fault.nth): fault for fault in plan}
        self.calls: Counter[str] = Counter()

    @contextmanager
    def around(self, operation: str) -> Iterator[None]:
        """Run one call, with the faults planned for it."""
        due = [self._take(operation), self._take("")]
        for fault in due:
            if fault and not fault.after:
                raise fault.error
        yield
        for fault in due:
            if fault and fault.after:
                raise fault.error

    def _take(self, operation: str) -> Fault | None:
        nth = self.calls[operation]
        self.calls[operation] += 1
        return self._plan.get((operation, nth))
