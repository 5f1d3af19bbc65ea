"""TaskSpec: what the policy learns, as `run.yaml` says it."""

from enum import StrEnum

from pydantic import Field, model_validator

from hexcloud.domain.frozen import Frozen


class Isolation(StrEnum):
    """How a verifier's process is kept apart from the rollout node."""

    FULL = "full"
    """No network, no files but the interpreter's, limits. A machine that cannot do that refuses the run."""
    LIMITS = "limits"
    """Limits only: it may use the network and read the user's files."""


class TaskSpec(Frozen):
    """Prompts, and a program that checks responses. Where nothing else is said, a bare text is the name."""

    name: str = "sort_digits"
    """`sort_digits`, `reasoning_gym:NAME`, `jsonl:FILE` or `hf:DATASET[:SPLIT]`."""
    reward: str | None = None
    """`exact`, `math`, `gym` or `python:FILE`; null: `gym` for reasoning_gym, else `exact`."""
    prompt: str = "prompt"
    """Field of `jsonl` and `hf` rows that holds the prompt."""
    answer: str = "answer"
    """Field of `jsonl` and `hf` rows that holds what the verifier needs."""
    system: str = ""
    """System message before each prompt, where a chat template is used."""
    chat: bool = True
    """Use the model's chat template, if it has one."""
    max_prompt_tokens: int = Field(default=512, gt=0)
    """Longer prompts are passed over (text tasks)."""
    max_new_tokens: int | None = Field(default=None, gt=0)
    """Most tokens of a response; null: what the task needs, 256 for text."""
    isolation: Isolation = Isolation.FULL
    """Of the verifier's process."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, data: object) -> object:
        return {"name": data} if isinstance(data, str) else data
