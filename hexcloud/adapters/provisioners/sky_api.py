"""SkyApi: SkyPilot's own client, as `SkyCalls`. Implemented against SkyPilot 0.14; importing it takes 2 seconds.

Its client writes to standard output, which is ours (`--json`), and starts a server with the caller's files open: both
are kept out of the way.
"""

import io
import logging
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from threading import Thread
from types import SimpleNamespace
from typing import Any

from hexcloud.adapters.clouds.discreet import discreet
from hexcloud.adapters.provisioners.sky_calls import Failure, JobState, Progress, Started, TaskRefusedError
from hexcloud.adapters.provisioners.sky_template import Task
from hexcloud.domain.errors import RateLimitError, UnknownProvisionError

LAUNCH = "sky.launch"
START_S = 120.0
"""The API server took 6 s to start on an idle machine, 20 s on a busy one."""
CANCEL_S = 20.0
LAST_LINES = 20
MAX_SAID_CHARS = 300
LAST_WORDS_S = 15.0
_PROGRESS = {
    "PENDING": Progress.WAITING,
    "WAITING": Progress.WAITING,
    "RUNNING": Progress.WAITING,
    "SUCCEEDED": Progress.DONE,
    "FAILED": Progress.FAILED,
    "CANCELLED": Progress.FAILED,
}
_JOBS = {
    "INIT": JobState.SETTING_UP,
    "PENDING": JobState.SETTING_UP,
    "SETTING_UP": JobState.SETTING_UP,
    "RUNNING": JobState.RUNNING,
    "SUCCEEDED": JobState.ENDED,
    "FAILED_SETUP": JobState.SETUP_FAILED,
    "FAILED": JobState.FAILED,
    "FAILED_DRIVER": JobState.FAILED,
    "CANCELLED": JobState.FAILED,
}
_START = "from sky.client import sdk; sdk.api_start()"
_SILENT = (
    "ApiServerConnectionError",
    "ApiServerAuthenticationError",
    "ServerTemporarilyUnavailableError",
)


class SkyApi:
    """Speaks to the API server that SkyPilot's own settings name; a local one is started when there is none."""

    def launch(self, task: Task, cluster: str) -> str:
        """See `SkyCalls.launch`."""
        sdk = self._sdk
        try:
            with _answered():
                return str(sdk.launch(self._sky.Task.from_yaml_config(dict(task)), cluster_name=cluster))
        except UnknownProvisionError as error:
            raise TaskRefusedError(error.__cause__ or error) from error

    def launches(self, cluster: str) -> tuple[str, ...]:
        """See `SkyCalls.launches`."""
        fields = ["request_id", "name", "created_at"]
        with _answered():
            found = self._sdk.api_status(cluster_name=cluster, all_status=True, fields=fields)
        launches = (request for request in found if request.name == LAUNCH)
        return tuple(one.request_id for one in sorted(launches, key=lambda one: -one.created_at))

    def progress(self, request: str) -> Progress:
        """See `SkyCalls.progress`."""
        with _answered():
            found = self._sdk.api_status(request_ids=[request])
        return _PROGRESS.get(found[0].status, Progress.WAITING) if found else Progress.FORGOTTEN

    def started(self, request: str) -> Started:
        """See `SkyCalls.started`."""
        with _answered():
            job, handle = self._sdk.get(request)
        addresses = getattr(handle, "stable_internal_external_ips", None) or ()
        return Started(job, tuple(private for private, _ in addresses))

    def failure(self, request: str) -> Failure:
        """See `SkyCalls.failure`."""
        log = io.StringIO()
        with _answered():
            self._sdk.stream_and_get(request, follow=False, output_stream=log)
        try:
            with _answered():
                self._sdk.get(request)
        except UnknownProvisionError as error:
            return Failure(error.__cause__ or error, log.getvalue())
        return Failure(RuntimeError("the launch failed and says no reason"), log.getvalue())

    def has(self, cluster: str) -> bool:
        """See `SkyCalls.has`."""
        with _answered():
            return bool(self._sdk.get(self._sdk.status([cluster])))

    def jobs(self, cluster: str) -> tuple[int, ...]:
        """See `SkyCalls.jobs`."""
        try:
            with _answered():
                queue = self._sdk.get(self._sdk.queue(cluster, skip_finished=True))
        except UnknownProvisionError:
            return ()  # it is not up
        return tuple(int(job["job_id"]) for job in queue)

    def job(self, cluster: str, job: int | None) -> JobState:
        """See `SkyCalls.job`."""
        try:
            with _answered():
                states = self._sdk.get(self._sdk.job_status(cluster, None if job is None else [job]))
        except UnknownProvisionError:
            return JobState.SILENT
        state = next(iter(states.values()), None)
        return JobState.SILENT if state is None else _JOBS.get(state.value, JobState.SILENT)

    def last_words(self, cluster: str, job: int | None) -> str:
        """See `SkyCalls.last_words`. SkyPilot may never come back from this one, so it is not waited for for long."""
        sdk, log = self._sdk, io.StringIO()

        def read() -> None:
            with suppress(UnknownProvisionError, RateLimitError), _answered():
                sdk.tail_logs(cluster, job, follow=False, tail=LAST_LINES, output_stream=log)

        reading = Thread(target=read, daemon=True)
        reading.start()
        reading.join(LAST_WORDS_S)
        return log.getvalue()

    def cancel(self, request: str) -> None:
        """See `SkyCalls.cancel`."""
        with _answered():
            self._sdk.get(self._sdk.api_cancel([request], silent=True))
        give_up = time.monotonic() + CANCEL_S
        while self.progress(request) is Progress.WAITING and time.monotonic() < give_up:
            time.sleep(0.2)

    def down(self, cluster: str) -> str:
        """See `SkyCalls.down`."""
        with _answered():
            return str(self._sdk.down(cluster))

    @cached_property
    def _sky(self) -> Any:
        with warnings.catch_warnings(), _root_logger_kept():
            warnings.simplefilter("ignore")  # of libraries that it uses in an old way
            import sky
        return sky

    @cached_property
    def _sdk(self) -> Any:
        """SkyPilot's client, silent, with a server to speak to."""
        sky = self._sky
        with _root_logger_kept():
            from sky.client import sdk
            from sky.server import common

        logger = logging.getLogger("sky")
        logger.handlers, logger.propagate = [logging.NullHandler()], False
        quiet: Any = sdk
        quiet.click = SimpleNamespace(secho=lambda *_, **__: None, BadParameter=ValueError)
        with _answered():
            is_there = common.get_api_server_status().status is not common.ApiServerStatus.UNHEALTHY
            if not is_there and common.is_api_server_local():
                _start_server()
        assert sky.get is sdk.get
        return sdk


def _start_server() -> None:
    """Start it by another process, so that it holds none of our files and says nothing on our standard output."""
    command = [sys.executable, "-W", "ignore", "-c", _START]
    try:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=START_S,
            check=True,
            text=True,
        )
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise RateLimitError(f"SkyPilot's API server does not start: {said}; `sky api start` says more") from error
    except subprocess.TimeoutExpired as error:
        raise RateLimitError(f"SkyPilot's API server did not start in {START_S:.0f} s") from error


@contextmanager
def _root_logger_kept() -> Iterator[None]:
    """Undo what an import does to the root logger: SkyPilot's would print every library's INFO lines."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers


@contextmanager
def _answered() -> Iterator[None]:
    """Turn what SkyPilot raises into RateLimitError when nobody answered, else into UnknownProvisionError."""
    try:
        yield
    except RateLimitError:
        raise
    except Exception as error:
        name = type(error).__name__
        is_silent = name in _SILENT or type(error).__module__.startswith(("requests.", "urllib3."))
        if is_silent or isinstance(error, TimeoutError | ConnectionError):
            said = (
                f"SkyPilot's API server, or what it needs of the network, does not answer; see `sky api info` ({name}: "
            )
            raise RateLimitError(f"{said}{discreet(str(error))[:MAX_SAID_CHARS]})", code=name) from error
        raise UnknownProvisionError(f"SkyPilot: {name}: {discreet(str(error))[:MAX_SAID_CHARS]}", code=name) from error
