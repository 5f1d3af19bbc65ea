"""Generation: what an engine is asked for and what it gives back. Token ids only; text never reaches an engine."""

from enum import StrEnum

from pydantic import Field

from hexcloud.domain.frozen import Frozen


class EngineKind(StrEnum):
    """Which inference engine a rollout node runs."""

    EMBEDDED = "embedded"
    """hexcloud's own, in its own environment: a small Qwen2 on one CPU thread."""
    SGLANG = "sglang"
    """The real server, in an environment of its own."""


class GenerationRequest(Frozen):
    """One trajectory to generate. `rid` names it for `abort`; it must be unique among the engine's open requests."""

    rid: str
    input_ids: tuple[int, ...] = Field(min_length=1)
    """Prompt, and any tokens already committed that are to be continued."""
    max_new_tokens: int = Field(gt=0)
    temperature: float = Field(default=1.0, ge=0)
    stop_token_ids: tuple[int, ...] = ()
    """Ends of a sequence besides the model's own eos; the one that is hit is part of the tokens."""
    ignore_eos: bool = False


class FinishKind(StrEnum):
    """Why a generation ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    """Aborted by the caller; the tokens so far are kept."""


class Generation(Frozen):
    """The answer to one request. `tokens`, `logprobs`, `versions` are equally long, and empty only after an abort."""

    rid: str
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Natural log, of the temperature-scaled distribution."""
    versions: tuple[int, ...]
    """Version of the weights that produced each token."""
    finish: FinishKind


class PauseMode(StrEnum):
    """What becomes of running requests when an engine pauses."""

    ABORT = "abort"
    """They end with what they have."""
    RETRACT = "retract"
    """They go back to the queue; their KV cache is computed anew when the engine continues."""
    IN_PLACE = "in_place"
    """They freeze and keep their KV cache, also across a weight update that does not flush it."""


class EngineInfo(Frozen):
    """What an engine says about itself."""

    model_path: str
    version: int
    """Weights loaded; -1 before the first load."""
