"""Tasks: what the policy learns. A task is prompts whose answers a program can check; no model code, no torch.

A task draws prompt number `index` of the sequence that `seed` names: a pure function of both, so that a run goes on
where it stood by remembering one number. `open_task.py` finds a task by its name.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

PAD_ID, BOS_ID, EOS_ID = 0, 1, 2
_SPECIAL = ("<pad>", "<bos>", "<eos>")


class Task(Protocol):
    """What a run needs of a task."""

    @property
    def name(self) -> str:
        """As `run.yaml` says it."""
        ...

    @property
    def vocabulary_size(self) -> int:
        """Rows of the model's embedding: every token's id is below."""
        ...

    @property
    def max_new_tokens(self) -> int:
        """Most tokens of a response."""
        ...

    @property
    def mean_response_tokens(self) -> float:
        """Turns a rate in samples into one in tokens, for emulated speeds."""
        ...

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Ids that end a response."""
        ...

    def prompt(self, seed: int, index: int) -> tuple[tuple[int, ...], str]:
        """Return prompt ids and what the verifier needs to score a response."""
        ...

    def response(self, ids: tuple[int, ...]) -> str | None:
        """Return the text of a response without its eos; None when it did not end, or holds ids without text."""
        ...


@dataclass(frozen=True)
class CharacterTask:
    """A small task over an alphabet of its own: id of a character = its place in `characters`, after the special ones.

    A tiny untrained policy can learn it, from right answers first.
    """

    name: str
    characters: str
    max_new_tokens: int
    mean_response_tokens: float
    """Of a right answer, eos included."""
    problem: Callable[[random.Random], tuple[str, str]]
    """Draws a question and its answer, in these characters."""
    eos_ids: tuple[int, ...] = (EOS_ID,)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The text of every id, in order of id."""
        return _SPECIAL + tuple(self.characters)

    @property
    def vocabulary_size(self) -> int:
        """Ids that there are."""
        return len(self.vocabulary)

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text. Raises ValueError for a character the task does not have."""
        return tuple(self.characters.index(character) + len(_SPECIAL) for character in text)

    def decode(self, ids: tuple[int, ...]) -> str:
        """Return the text of ids; pad, bos and eos have none."""
        return "".join(self.characters[i - len(_SPECIAL)] for i in ids if i >= len(_SPECIAL))

    def prompt(self, seed: int, index: int) -> tuple[tuple[int, ...], str]:
        """Return prompt ids and the right answer."""
        return self._draw(random.Random(f"{seed}/{index}"))

    def response(self, ids: tuple[int, ...]) -> str | None:
        """Return the text of a response that ends with its only special id, eos; else None."""
        if not ids or ids[-1] != EOS_ID or min(ids[:-1], default=len(_SPECIAL)) < len(_SPECIAL):
            return None
        return self.decode(ids)

    def demonstration(self, rng: random.Random) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Draw a prompt and its right response, eos included: one example for the warm start."""
        prompt_ids, answer = self._draw(rng)
        return prompt_ids, (*self.encode(answer), EOS_ID)

    def _draw(self, rng: random.Random) -> tuple[tuple[int, ...], str]:
        question, answer = self.problem(rng)
        return (BOS_ID, *self.encode(question)), answer


def _sorting(rng: random.Random) -> tuple[str, str]:
    digits = rng.choices("0123456789", k=rng.randint(3, 8))
    return "".join(digits) + ">", "".join(sorted(digits))


SORT_DIGITS = CharacterTask(
    name="sort_digits",
    # One alphabet for arithmetic tasks too, so that they can share a model of 21 ids.
    characters="0123456789+=>,-*?%",
    max_new_tokens=10,
    mean_response_tokens=6.5,  # 3 to 8 digits, evenly, and eos
    problem=_sorting,
)

TASKS: dict[str, CharacterTask] = {SORT_DIGITS.name: SORT_DIGITS}
"""Tasks that bring their own alphabet and tiny policy."""
