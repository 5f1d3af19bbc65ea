"""Client of an engine that speaks SGLang's HTTP API: SGLang itself, or the embedded engine. Implements ports.Engine."""

from typing import Any

import httpx

from hexcloud.domain.errors import EngineError
from hexcloud.domain.generation import EngineInfo, FinishKind, Generation, GenerationRequest, PauseMode

_CONTROL_TIMEOUT_S = 30.0
"""Loading weights included; an engine that takes longer is as good as lost."""


class EngineClient:
    """One engine at `url`. Thread-safe, as httpx.Client is."""

    def __init__(self, url: str, generate_timeout_s: float = 600.0) -> None:
        self.url = url
        # Trust no proxy settings of the environment: the engine is a neighbour on the same machine.
        self._http = httpx.Client(base_url=url, timeout=_CONTROL_TIMEOUT_S, trust_env=False)
        self._generate_timeout_s = generate_timeout_s

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def generate(self, requests: tuple[GenerationRequest, ...]) -> tuple[Generation, ...]:
        """Return one generation per request, in order, when all have ended. Raises EngineError."""
        if not requests:
            return ()
        body = {
            "input_ids": [request.input_ids for request in requests],
            "sampling_params": [_sampling_params(request) for request in requests],
            "rid": [request.rid for request in requests],
            "return_logprob": True,
        }
        answers = self._call("POST", "/generate", body, self._generate_timeout_s).json()
        try:
            pairs = zip(requests, answers, strict=True)
            return tuple(_generation(request.rid, answer) for request, answer in pairs)
        except (KeyError, TypeError, ValueError) as error:
            raise EngineError(f"the engine's answer to /generate is not understood: {error!r}") from error

    def update_weights_from_disk(self, path: str, version: int) -> None:
        """Load a directory's weights between two decode steps. Raises EngineError; the old weights then stay."""
        body = {"model_path": path, "weight_version": str(version), "flush_cache": True}
        self._call("POST", "/update_weights_from_disk", body)

    def pause(self, mode: PauseMode) -> None:
        """Stop decoding."""
        self._call("POST", "/pause_generation", {"mode": mode.value})

    def resume(self) -> None:
        """Go on after `pause`."""
        self._call("POST", "/continue_generation", {})

    def abort(self, rids: tuple[str, ...]) -> None:
        """End these requests with the tokens they have."""
        for rid in rids:
            self._call("POST", "/abort_request", {"rid": rid})

    def abort_all(self) -> None:
        """End every open request with the tokens it has."""
        self._call("POST", "/abort_request", {"abort_all": True})

    def is_healthy(self) -> bool:
        """Does it answer?"""
        try:
            return self._http.get("/health", timeout=2.0).is_success
        except httpx.HTTPError:
            return False

    def info(self) -> EngineInfo:
        """Return which weights are loaded. Labels that are no numbers (an engine's own first one) read as -1."""
        answer = self._call("GET", "/model_info").json()
        return EngineInfo(model_path=answer["model_path"], version=_version(answer["weight_version"]))

    def _call(
        self, method: str, path: str, body: dict[str, Any] | None = None, timeout_s: float = _CONTROL_TIMEOUT_S
    ) -> httpx.Response:
        try:
            response = self._http.request(method, path, json=body, timeout=timeout_s)
        except httpx.HTTPError as error:
            raise EngineError(f"{path} of the engine at {self.url} failed: {error!r}") from error
        if not response.is_success:
            raise EngineError(f"{path} was refused with HTTP {response.status_code}: {response.text[:500]}")
        return response


def _sampling_params(request: GenerationRequest) -> dict[str, Any]:
    return {
        "max_new_tokens": request.max_new_tokens,
        "temperature": request.temperature,
        "stop_token_ids": request.stop_token_ids,
        "ignore_eos": request.ignore_eos,
    }


def _generation(rid: str, answer: dict[str, Any]) -> Generation:
    meta = answer["meta_info"]
    tokens = tuple(answer["output_ids"])
    return Generation(
        rid=rid,
        tokens=tokens,
        logprobs=tuple(logprob for logprob, *_ in meta.get("output_token_logprobs", ())),
        versions=_versions(meta, len(tokens)),
        finish=FinishKind(meta["finish_reason"]["type"]),
    )


def _versions(meta: dict[str, Any], count: int) -> tuple[int, ...]:
    """Spread the spans over the tokens; engines before SGLang 0.5.19 give only the version at the end."""
    if "weight_versions" not in meta:
        return (_version(meta["weight_version"]),) * count
    spans = meta["weight_versions"] or ()
    return tuple(_version(span["version"]) for span in spans for _ in range(span["start"], span["end"]))


def _version(label: str) -> int:
    try:
        return int(label)
    except ValueError:
        return -1
