"""What an engine's /generate answers, read into generations. Whatever does not add up is an EngineError."""

from typing import Any

from hexcloud.domain.errors import EngineError
from hexcloud.domain.generation import FinishKind, Generation, GenerationRequest

UNKNOWN_VERSION = -1
"""Of weights whose label is no number: an engine's own first one."""


def generations_of(requests: tuple[GenerationRequest, ...], answers: Any) -> tuple[Generation, ...]:
    """Return one generation per request. Raises EngineError for answers that are errors, too few, or half."""
    try:
        return tuple(_generation(request.rid, answer) for request, answer in zip(requests, answers, strict=True))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        shown = repr(answers)[:300]
        raise EngineError(f"the engine's answer to /generate is not understood: {error!r} in {shown}") from error


def version_of(label: object) -> int:
    """Return the version that a label of weights names."""
    try:
        return int(str(label))
    except ValueError:
        return UNKNOWN_VERSION


def _generation(rid: str, answer: dict[str, Any]) -> Generation:
    meta = answer["meta_info"]
    tokens = tuple(answer["output_ids"])
    logprobs = tuple(logprob for logprob, *_ in meta.get("output_token_logprobs") or ())
    versions = _versions(meta, len(tokens))
    if not len(tokens) == len(logprobs) == len(versions):
        raise ValueError(f"{len(tokens)} tokens, {len(logprobs)} logprobs, {len(versions)} versions")
    return Generation(
        rid=rid,
        tokens=tokens,
        logprobs=logprobs,
        versions=versions,
        finish=FinishKind(meta["finish_reason"]["type"]),
    )


def _versions(meta: dict[str, Any], count: int) -> tuple[int, ...]:
    """Spread the spans over the tokens; engines before SGLang 0.5.19 give only the version at the end."""
    if "weight_versions" not in meta:
        return (version_of(meta["weight_version"]),) * count
    spans = meta["weight_versions"] or ()
    return tuple(version_of(span["version"]) for span in spans for _ in range(span["start"], span["end"]))
