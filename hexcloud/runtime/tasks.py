"""Tasks: what the policy learns. A task is prompts whose answers a program can check; no model code, no torch.

Ids 0, 1 and 2 are pad, bos and eos in every task; a character's id follows from its place in `characters`.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

PAD_ID, BOS_ID, EOS_ID = 0, 1, 2
_SPECIAL = ("<pad>", "<bos>", "<eos>")


@dataclass(frozen=True)
class Task:
    """One verifiable task. `problem` draws a (question, answer) pair of texts in the task's characters."""

    name: str
    characters: str
    max_new_tokens: int
    mean_response_tokens: float
    """Of a right answer, eos included: turns a rate in samples into one in tokens."""
    problem: Callable[[random.Random], tuple[str, str]]

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The text of every id, in order of id."""
        return _SPECIAL + tuple(self.characters)

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text. Raises ValueError for a character the task does not have."""
        return tuple(self.characters.index(character) + len(_SPECIAL) for character in text)

    def decode(self, ids: tuple[int, ...]) -> str:
        """Return the text of ids; pad, bos and eos have none."""
        return "".join(self.characters[i - len(_SPECIAL)] for i in ids if i >= len(_SPECIAL))

    def prompt(self, rng: random.Random) -> tuple[tuple[int, ...], str]:
        """Draw a prompt and the answer that its verifier wants."""
        question, answer = self.problem(rng)
        return (BOS_ID, *self.encode(question)), answer

    def demonstration(self, rng: random.Random) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Draw a prompt and its right response, eos included: one example for the warm start."""
        prompt_ids, answer = self.prompt(rng)
        return prompt_ids, (*self.encode(answer), EOS_ID)


def _sorting(rng: random.Random) -> tuple[str, str]:
    digits = rng.choices("0123456789", k=rng.randint(3, 8))
    return "".join(digits) + ">", "".join(sorted(digits))


SORT_DIGITS = Task(
    name="sort_digits",
    # One alphabet for arithmetic tasks too, so that they can share a model of 21 ids.
    characters="0123456789+=>,-*?%",
    max_new_tokens=10,
    mean_response_tokens=6.5,  # 3 to 8 digits, evenly, and eos
    problem=_sorting,
)

TASKS: dict[str, Task] = {SORT_DIGITS.name: SORT_DIGITS}
"""Every task a run may name."""
