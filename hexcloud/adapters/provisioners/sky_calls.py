"""What is asked of SkyPilot, in our words: requests that are begun, looked at later, and found again by their cluster.

Every call raises RateLimitError while SkyPilot's API server does not answer, and UnknownProvisionError when it cannot.
"""

from enum import StrEnum
from typing import NamedTuple, Protocol

from hexcloud.adapters.provisioners.sky_template import Task


class Progress(StrEnum):
    """Where a request stands."""

    WAITING = "waiting"
    """In the queue or at work."""
    DONE = "done"
    FAILED = "failed"
    """Refused, broken off or cancelled."""
    FORGOTTEN = "forgotten"
    """The server knows no such request: it forgets all of them when it starts."""


class JobState(StrEnum):
    """Where the program of a cluster stands."""

    SETTING_UP = "setting_up"
    RUNNING = "running"
    ENDED = "ended"
    """It ran, and is through."""
    SETUP_FAILED = "setup_failed"
    FAILED = "failed"
    SILENT = "silent"
    """Nobody on the machine answers just now."""


class Started(NamedTuple):
    """What a launch that is done has made."""

    job: int | None
    addresses: tuple[str, ...]
    """Private addresses of the machines, in rank order."""


class Failure(NamedTuple):
    """What a request failed with."""

    error: BaseException
    log: str


class TaskRefusedError(Exception):
    """SkyPilot does not even begin with a task, and no cloud was asked for anything."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class SkyCalls(Protocol):
    """SkyPilot's API server."""

    def launch(self, task: Task, cluster: str) -> str:
        """Begin to launch a cluster, and return the request's id. Raises TaskRefusedError."""
        ...

    def launches(self, cluster: str) -> tuple[str, ...]:
        """Return the ids of all requests known to launch a cluster, the newest first."""
        ...

    def progress(self, request: str) -> Progress:
        """Return where a request stands."""
        ...

    def started(self, request: str) -> Started:
        """Return the answer to a launch that is done."""
        ...

    def failure(self, request: str) -> Failure:
        """Return what a request failed with, and its log."""
        ...

    def has(self, cluster: str) -> bool:
        """Does SkyPilot know the cluster, in whatever state?"""
        ...

    def jobs(self, cluster: str) -> tuple[int, ...]:
        """Return the ids of the jobs that are not over on a cluster that is up; none on any other."""
        ...

    def job(self, cluster: str, job: int | None) -> JobState:
        """Return where a job stands."""
        ...

    def last_words(self, cluster: str, job: int | None) -> str:
        """Return the last lines that a job wrote; empty when the machine does not answer."""
        ...

    def cancel(self, request: str) -> None:
        """Break a request off, and wait until that is done; one that is over is fine."""
        ...

    def down(self, cluster: str) -> str:
        """Begin to end a cluster, and return the request's id."""
        ...
