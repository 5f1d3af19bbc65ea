"""Client of an engine that speaks SGLang's HTTP API: SGLang itself, or the embedded engine. Implements ports.Engine.

Written for SGLang >= 0.5.21; an older one is used as far as it goes, found out by what it answers.
"""

import threading
from pathlib import Path
from typing import Any

from hexcloud.adapters.engines.answers import generations_of, version_of
from hexcloud.adapters.engines.line import EngineLine, EngineRefusedError
from hexcloud.adapters.engines.model_folder import ModelFacts
from hexcloud.domain.errors import RequestRefusedError
from hexcloud.domain.generation import EngineInfo, Generation, GenerationRequest, PauseMode

_OK, _UNKNOWN = 200, 404
_BAD_REQUEST = range(400, 500)
"""Statuses that speak of the request. An error told as a success, or a 5xx, speaks of the engine."""


class EngineClient:
    """One engine at `url` that serves a model of these facts. Thread-safe.

    What SGLang would not survive is refused here, before it is sent: an id outside the vocabulary ends the whole
    server, and so do weights that cannot be loaded to their end.
    """

    def __init__(self, url: str, model: ModelFacts, generate_timeout_s: float = 600.0) -> None:
        self.url = url
        self.line = EngineLine(url)
        self.model = model
        self._generate_timeout_s = generate_timeout_s
        self._counting = threading.Lock()
        self.made, self.mixed = 0, 0
        """Generations until now, and those of them whose tokens came from several versions of the weights."""

    def close(self) -> None:
        """Close the connections."""
        self.line.close()

    def generate(self, requests: tuple[GenerationRequest, ...]) -> tuple[Generation, ...]:
        """Return one generation per request, in order, when all have ended.

        Raises EngineError, of the kind RequestRefusedError when it is a request that is wrong.
        """
        if not requests:
            return ()
        self._require_known_ids(requests)
        body = {
            "input_ids": [request.input_ids for request in requests],
            "sampling_params": [_sampling_params(request) for request in requests],
            "rid": [request.rid for request in requests],
            "return_logprob": True,
        }
        try:
            answers = self.line.ask("POST", "/generate", body, self._generate_timeout_s)
        except EngineRefusedError as error:
            if error.status in _BAD_REQUEST:
                raise RequestRefusedError(str(error)) from error
            raise
        made = generations_of(requests, answers)
        with self._counting:
            self.made += len(made)
            self.mixed += sum(len(set(one.versions)) > 1 for one in made)
        return made

    def update_weights_from_disk(self, path: str, version: int, mode: PauseMode = PauseMode.RETRACT) -> None:
        """Pause, flush the cache, load a folder, go on. Raises EngineError.

        Weights of another model are refused before anything is paused. Whatever fails later leaves the engine paused,
        for no refusal says how much of the old weights is left: it must be replaced.

        `mode` says what becomes of running requests: by `retract` they go on under the new weights, their cache
        computed anew; by `abort` they end with what they have; `in_place` keeps the cache that the old weights made.
        """
        self.model.require_same(Path(path))
        flush = mode is not PauseMode.IN_PLACE
        body = {"model_path": path, "weight_version": str(version), "flush_cache": flush}
        self.pause(mode)
        self.line.tell("/update_weights_from_disk", body)
        self.resume()

    def pause(self, mode: PauseMode) -> None:
        """Stop decoding."""
        self.line.tell("/pause_generation", {"mode": mode.value})

    def resume(self) -> None:
        """Go on after `pause`."""
        self.line.tell("/continue_generation", {})

    def abort(self, rids: tuple[str, ...]) -> None:
        """End these requests with the tokens they have."""
        for rid in rids:
            self.line.tell("/abort_request", {"rid": rid})

    def abort_all(self) -> None:
        """End every open request with the tokens it has."""
        self.line.tell("/abort_request", {"abort_all": True})

    def is_healthy(self) -> bool:
        """Does it answer?"""
        return self.line.look("/health") == _OK

    def is_ready(self) -> bool:
        """Would a request be served now? Engines before SGLang 0.5.20 only know whether they answer."""
        status = self.line.look("/ready")
        return self.is_healthy() if status == _UNKNOWN else status == _OK

    def info(self) -> EngineInfo:
        """Return which weights are loaded. Labels that are no numbers (an engine's own first one) read as -1."""
        answer = self.line.ask("GET", "/model_info")
        return EngineInfo(model_path=answer["model_path"], version=version_of(answer["weight_version"]))

    def _require_known_ids(self, requests: tuple[GenerationRequest, ...]) -> None:
        for request in requests:
            least, most = min(request.input_ids), max(request.input_ids)
            if least < 0 or most >= self.model.vocab:
                span = f"input_ids must be in [0, {self.model.vocab}), got {least} to {most}"
                raise RequestRefusedError(f"request {request.rid!r} was not sent: {span}")


def _sampling_params(request: GenerationRequest) -> dict[str, Any]:
    return {
        "max_new_tokens": request.max_new_tokens,
        "temperature": request.temperature,
        "stop_token_ids": request.stop_token_ids,
        "ignore_eos": request.ignore_eos,
    }
