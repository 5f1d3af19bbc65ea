"""TextTask: problems in words, for a pretrained model with a tokenizer of its own."""

from dataclasses import dataclass

from hexcloud.domain.errors import ConfigError
from hexcloud.domain.task import TaskSpec
from hexcloud.runtime.problems import Problems
from hexcloud.runtime.text_tokenizer import TextTokenizer

MAX_NEW_TOKENS = 256
_TRIES = 20
"""Other prompts in the place of one that is too long."""


@dataclass(frozen=True)
class TextTask:
    """Problems, and how their texts become ids."""

    spec: TaskSpec
    problems: Problems
    tokenizer: TextTokenizer

    @property
    def name(self) -> str:
        """As `run.yaml` says it."""
        return self.spec.name

    @property
    def vocabulary_size(self) -> int:
        """Rows of the model's embedding: every token's id is below."""
        return self.tokenizer.vocabulary_size

    @property
    def max_new_tokens(self) -> int:
        """Most tokens of a response."""
        return self.spec.max_new_tokens or MAX_NEW_TOKENS

    @property
    def mean_response_tokens(self) -> float:
        """Half of the most: how long answers are is the model's affair."""
        return self.max_new_tokens / 2

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Ids that end a response."""
        return self.tokenizer.eos_ids

    def prompt(self, seed: int, index: int) -> tuple[tuple[int, ...], str]:
        """Return prompt ids and what the verifier needs. Raises ConfigError when every prompt tried is too long."""
        for attempt in range(_TRIES):
            problem = self.problems.problem(seed + 1_000_003 * attempt, index)
            ids = self.tokenizer.prompt(problem.question, self.spec.system, self.spec.chat)
            if len(ids) <= self.spec.max_prompt_tokens:
                return ids, problem.answer
        raise ConfigError(
            f"task {self.name}: {_TRIES} prompts in a row have over {self.spec.max_prompt_tokens} tokens; "
            f"raise `max_prompt_tokens` under `task:`"
        )

    def response(self, ids: tuple[int, ...]) -> str | None:
        """Return the text of a response that has ended, else None."""
        return self.tokenizer.decode(ids[:-1]) if ids and ids[-1] in self.eos_ids else None
