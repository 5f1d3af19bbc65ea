"""The subset of SGLang's HTTP API that the embedded engine speaks: the same names, shapes and refusals (0.5.23)."""

from itertools import groupby
from typing import Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hexcloud.adapters.engines.embedded_scheduler import Sequence
from hexcloud.domain.generation import FinishKind, GenerationRequest, PauseMode


class SamplingParams(BaseModel):
    """Unknown ones are refused, as SGLang does. Truncation (top_p, top_k) is not offered: RL samples the whole."""

    model_config = ConfigDict(extra="forbid")
    max_new_tokens: int = Field(default=128, gt=0)
    temperature: float = Field(default=1.0, ge=0)
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False


class GenerateBody(BaseModel):
    """POST /generate. Other top-level fields are ignored, as SGLang does."""

    input_ids: list[int] | list[list[int]]
    sampling_params: SamplingParams | list[SamplingParams] = SamplingParams()
    rid: str | list[str] | None = None
    return_logprob: bool = False
    stream: Literal[False] = False

    @model_validator(mode="after")
    def _same_lengths(self) -> "GenerateBody":
        if not self.prompts or not all(self.prompts):
            raise ValueError("input_ids must not be empty")
        for name in ("sampling_params", "rid"):
            value = getattr(self, name)
            if isinstance(value, list) and len(value) != len(self.prompts):
                raise ValueError(f"{name} has {len(value)} entries for {len(self.prompts)} prompts")
        return self

    @property
    def is_batch(self) -> bool:
        """Is the answer a list?"""
        return bool(self.input_ids) and isinstance(self.input_ids[0], list)

    @property
    def prompts(self) -> list[list[int]]:
        """One list of ids per request."""
        return [ids if isinstance(ids, list) else [ids] for ids in self.input_ids] if self.is_batch else [self._single]

    @property
    def _single(self) -> list[int]:
        return [i for i in self.input_ids if isinstance(i, int)]

    def requests(self) -> list[GenerationRequest]:
        """Return one request per prompt; a single `rid` names a batch `rid_0`, `rid_1`, ..."""
        count = len(self.prompts)
        params = self.sampling_params if isinstance(self.sampling_params, list) else [self.sampling_params] * count
        return [
            GenerationRequest(
                rid=rid,
                input_ids=tuple(ids),
                max_new_tokens=param.max_new_tokens,
                temperature=param.temperature,
                stop_token_ids=tuple(param.stop_token_ids or ()),
                ignore_eos=param.ignore_eos,
            )
            for rid, ids, param in zip(self._rids(count), self.prompts, params, strict=True)
        ]

    def _rids(self, count: int) -> list[str]:
        if isinstance(self.rid, list):
            return self.rid
        name = self.rid or uuid4().hex
        return [f"{name}_{i}" for i in range(count)] if self.is_batch else [name]


class UpdateWeightsBody(BaseModel):
    """POST /update_weights_from_disk. The directory holds `model.safetensors`."""

    model_path: str
    weight_version: str | None = None
    flush_cache: bool = True
    abort_all_requests: bool = False


class PauseBody(BaseModel):
    """POST /pause_generation."""

    mode: PauseMode = PauseMode.ABORT


class AbortBody(BaseModel):
    """POST /abort_request: one request by its exact rid, or all."""

    rid: str = ""
    abort_all: bool = False


class SlowDownBody(BaseModel):
    """POST /slow_down: seconds of sleep at every step; null or 0 for none."""

    forward_sleep_time: float | None = Field(default=None, ge=0)


def answer(sequence: Sequence, version: str, with_logprobs: bool) -> dict[str, object]:
    """Return one finished request as /generate shows it."""
    meta: dict[str, object] = {
        "id": sequence.request.rid,
        "finish_reason": _finish_reason(sequence),
        "prompt_tokens": len(sequence.request.input_ids),
        "completion_tokens": len(sequence.tokens),
        "weight_version": version,
        "weight_versions": _spans(sequence.versions),
    }
    if with_logprobs:
        pairs = zip(sequence.logprobs, sequence.tokens, strict=True)
        meta["output_token_logprobs"] = [[logprob, token, None] for logprob, token in pairs]
    return {"output_ids": sequence.tokens, "meta_info": meta}


def _finish_reason(sequence: Sequence) -> dict[str, object]:
    if sequence.finish is FinishKind.STOP:
        return {"type": "stop", "matched": sequence.tokens[-1]}
    if sequence.finish is FinishKind.LENGTH:
        return {"type": "length", "length": len(sequence.tokens)}
    return {"type": "abort", "message": "Aborted by request", "status_code": None, "err_type": None}


def _spans(versions: list[str]) -> list[dict[str, object]]:
    """Return which tokens came from which weights, as half-open intervals of output tokens."""
    spans: list[dict[str, object]] = []
    start = 0
    for version, run in groupby(versions):
        end = start + len(list(run))
        spans.append({"version": version, "start": start, "end": end})
        start = end
    return spans
