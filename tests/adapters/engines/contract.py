"""The engine contract (test_contract_*.py): the same tests for the embedded engine and for the real SGLang server."""

from concurrent.futures import Future
from dataclasses import dataclass

import pytest
import torch
from transformers import Qwen2ForCausalLM

from hexcloud.adapters.engines.client import EngineClient
from hexcloud.domain.generation import Generation, GenerationRequest

LONG = 55
"""Tokens. The model's context leaves 61 after the usual prompt; SGLang (0.5.23) ends two before its end."""
STEP_S = 0.04
"""Sleep of a slow engine at each step, so that a request of LONG tokens is in flight for 2.4 s and more."""
SGLANG = pytest.param("sglang", marks=[pytest.mark.sglang, pytest.mark.timeout(1200)])
"""The parameter of the fixture `stage` that is the real server; its start may take minutes."""
Answer = Future[tuple[Generation, ...]]


@dataclass(frozen=True)
class Subject:
    """An engine under contract: a real process of its own, and the versions of a model that it may serve."""

    client: EngineClient
    theirs: dict[int, Qwen2ForCausalLM]
    paths: dict[int, str]
    kind: str

    @property
    def running(self) -> int:
        if self.kind == "embedded":
            return int(self.client.line.ask("GET", "/server_info")["internal_states"][0]["running"])
        return int(self.client.line.ask("GET", "/v1/loads")["loads"][0]["num_running_reqs"])

    def slow_down(self, step_s: float) -> None:
        self.client.line.tell("/slow_down", {"forward_sleep_time": step_s or None})

    def logprob(self, version: int, context: tuple[int, ...], token: int) -> float:
        """What Hugging Face says of a token after a context."""
        with torch.no_grad():
            logits = self.theirs[version](input_ids=torch.tensor([context])).logits[0, -1]
        return float(logits.log_softmax(-1)[token])

    def assert_true(self, prompt: tuple[int, ...], made: Generation) -> None:
        """Every token's behaviour logprob is that of the version that the engine says it came from, in fp32."""
        for index, (token, version) in enumerate(zip(made.tokens, made.versions, strict=True)):
            expected = self.logprob(version, prompt + made.tokens[:index], token)
            assert made.logprobs[index] == pytest.approx(expected, abs=1e-4), f"token {index} of version {version}"


def ask(rid: str, prompt: tuple[int, ...] = (1, 5, 6), **fields: object) -> GenerationRequest:
    return GenerationRequest.model_validate(
        {"rid": rid, "input_ids": prompt, "max_new_tokens": 8, "ignore_eos": True, **fields}
    )
