"""Problems: texts of questions, and what a verifier needs to score answers. From a file, a dataset, or a generator.

Problem `index` of the sequence that `seed` names is always the same one. A finite source is gone through in passes,
each in an order of its own.
"""

import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from numpy import generic

from hexcloud.domain.errors import ConfigError

_PASS = 1000
"""Problems of one generated set. Some generators make the whole set at once."""


@dataclass(frozen=True)
class Problem:
    """One question."""

    question: str
    answer: str
    """What the verifier needs; for a plain task the right answer."""


class Problems(Protocol):
    """A sequence of problems for every seed."""

    def problem(self, seed: int, index: int) -> Problem:
        """Return one."""
        ...


class Rows:
    """A finite list of problems, in another order in every pass."""

    def __init__(self, rows: tuple[Problem, ...]) -> None:
        self._rows = rows
        self._order = lru_cache(maxsize=4)(self._shuffled)

    def problem(self, seed: int, index: int) -> Problem:
        """Return one."""
        turn, place = divmod(index, len(self._rows))
        return self._rows[self._order(seed, turn)[place]]

    def _shuffled(self, seed: int, turn: int) -> list[int]:
        order = list(range(len(self._rows)))
        random.Random(f"{seed}/{turn}").shuffle(order)
        return order


class Gym:
    """A reasoning-gym task. The answer of a problem is its whole entry, as a Python literal: its verifier needs it."""

    def __init__(self, name: str) -> None:
        """Raises ConfigError when there is no such task, or the package is missing."""
        try:
            from reasoning_gym.factory import DATASETS, create_dataset
        except ModuleNotFoundError as error:
            raise ConfigError("task: reasoning_gym tasks need `pip install hexcloud[tasks]`") from error
        if name not in DATASETS:
            raise ConfigError(f"task: reasoning-gym has no task {name!r}; it has {', '.join(sorted(DATASETS))}")
        self._name = name
        self._create = create_dataset
        self._set = lru_cache(maxsize=4)(self._made)

    def problem(self, seed: int, index: int) -> Problem:
        """Return one."""
        turn, place = divmod(index, _PASS)
        entry = self._set(seed, turn)[place]
        return Problem(str(entry["question"]), repr((self._name, _plain(entry))))

    def _made(self, seed: int, turn: int) -> "_Entries":
        try:
            made: _Entries = self._create(self._name, size=_PASS, seed=random.Random(f"{seed}/{turn}").getrandbits(31))
        except (AssertionError, ValueError) as error:
            raise ConfigError(f"task: reasoning-gym cannot make {self._name!r}: {error}") from error
        return made


def _plain(value: object) -> object:
    """Return a value without numpy's kinds of text and number, whose repr is no literal."""
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return type(value)(map(_plain, value))
    if isinstance(value, str):
        return str(value)
    return value.item() if isinstance(value, generic) else value


class _Entries(Protocol):
    def __getitem__(self, place: int) -> dict[str, object]: ...
