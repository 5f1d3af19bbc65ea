"""Rewards: a number for every response, from a verifier on the rollout node's CPUs. Exact match is made here; all else,
which runs code over what a model wrote, in a sandbox.
"""

import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from threading import Lock

import structlog

from hexcloud.domain.errors import ConfigError
from hexcloud.domain.sample import MAX_REWARD
from hexcloud.domain.task import Isolation, TaskSpec
from hexcloud.runtime.open_task import GYM
from hexcloud.runtime.sandbox import Limits, Sandbox, Verdict
from hexcloud.runtime.tasks import Task

EXACT, MATH, GYM_SCORE, PYTHON = "exact", "math", "gym", "python:"
_MOST_AT_ONCE = 8
_OWN = Path(__file__).with_name("verifiers")
_STEADY = Limits(wall_s=5.0, cpu_s=None, memory_mib=2048)
"""For our own verifiers, which outlive a response: their imports take a second."""

log = structlog.get_logger()


def reward(task: Task, tokens: tuple[int, ...], answer: str) -> float:
    """Return 1 for a response that is exactly the answer (spaces around it aside) and then ends, else 0."""
    text = task.response(tokens)
    return 1.0 if text is not None and text.strip() == answer.strip() else 0.0


def reward_of(spec: TaskSpec) -> str:
    """Return the kind of a task's reward. Raises ConfigError for an unknown one."""
    kind = spec.reward or (GYM_SCORE if spec.name.startswith(GYM) else EXACT)
    if kind not in (EXACT, MATH, GYM_SCORE) and not kind.startswith(PYTHON):
        raise ConfigError(f"task: reward {kind!r} is unknown; there are {EXACT}, {MATH}, {GYM_SCORE}, {PYTHON}FILE")
    if kind == GYM_SCORE and not spec.name.startswith(GYM):
        raise ConfigError(f"task: reward {GYM_SCORE} scores tasks named {GYM}NAME only")
    return kind


class Scorer:
    """Scores the responses of one node. `score` blocks and may be called from several threads."""

    def __init__(self, task: Task, spec: TaskSpec) -> None:
        """Raises ConfigError when the verifier cannot be used here."""
        self._task = task
        kind = reward_of(spec)
        self._rooms = None if kind == EXACT else _Rooms(kind, spec.isolation)
        self.faults: Counter[str] = Counter()
        """Why responses have no reward of their own and count as 0 -> how many."""
        self._counting = Lock()

    def score(self, responses: Sequence[tuple[tuple[int, ...], str]]) -> list[float]:
        """Return the rewards of (ids, answer). Where the verifier fails it is 0, and counted."""
        if self._rooms is None:
            return [reward(self._task, ids, answer) for ids, answer in responses]
        texts = [(self._task.response(ids), answer) for ids, answer in responses]
        found_out = self._rooms.verdicts([(text, answer) for text, answer in texts if text is not None])
        verdicts = [_bounded(verdict) for verdict in found_out]
        self._count(verdicts)
        found = iter(verdicts)
        return [0.0 if text is None else next(found).reward for text, _ in texts]

    def close(self) -> None:
        """End every verifier."""
        if self._rooms is not None:
            self._rooms.close()

    def _count(self, verdicts: list[Verdict]) -> None:
        faults = Counter(verdict.fault.partition(":")[0] for verdict in verdicts if verdict.fault)
        if not faults:
            return
        with self._counting:
            self.faults.update(faults)
        example = next(verdict.fault for verdict in verdicts if verdict.fault)
        log.warning("verifier_faults", faults=dict(faults), so_far=dict(self.faults), example=example)


def _bounded(verdict: Verdict) -> Verdict:
    """Believe no reward that the coordinator would refuse: the verifier's mistake is not this machine's."""
    if abs(verdict.reward) <= MAX_REWARD:
        return verdict
    return Verdict(0.0, f"reward {verdict.reward:g} is out of bounds: its size may be {MAX_REWARD:g} at most")


class _Rooms:
    """Sandboxes of one verifier, as many as there are CPUs to spare. A user's own verifier gets a new one each time."""

    def __init__(self, kind: str, isolation: Isolation) -> None:
        self._isolation = isolation
        self._is_users = kind.startswith(PYTHON)
        path = Path(kind.removeprefix(PYTHON)) if self._is_users else _OWN / f"{kind}.py"
        try:
            self._source = path.read_text()
        except OSError as error:
            raise ConfigError(f"task: verifier {path} cannot be read: {error}") from error
        places = max(1, min(_MOST_AT_ONCE, (os.cpu_count() or 1) - 1))
        self._pool = ThreadPoolExecutor(places, thread_name_prefix="verifier")
        self._free: SimpleQueue[Sandbox | None] = SimpleQueue()
        self._free.put(self._open())  # now: a verifier that cannot be used is found before any response is made
        for _ in range(places - 1):
            self._free.put(None)

    def verdicts(self, pairs: list[tuple[str, str]]) -> list[Verdict]:
        return list(self._pool.map(self._verdict, pairs))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)  # a room that is busy ends with this process
        while not self._free.empty():
            room = self._free.get()
            if room is not None:
                room.close()

    def _open(self) -> Sandbox:
        return Sandbox(self._source, Limits() if self._is_users else _STEADY, self._isolation)

    def _verdict(self, pair: tuple[str, str]) -> Verdict:
        room = self._free.get()
        try:
            if room is None or not room.is_alive:
                room = self._open()
            verdict = room.verify(*pair)
            if self._is_users:
                room.close()  # the next response must find nothing of this one
            return verdict
        except ConfigError as error:  # it could be started before
            return Verdict(0.0, str(error))
        except Exception as error:  # noqa: BLE001 - whatever a response brings about costs its own reward only
            if room is not None:
                room.close()
            return Verdict(0.0, f"{type(error).__name__}: {error}")
        finally:
            self._free.put(room if room is not None and room.is_alive else None)
