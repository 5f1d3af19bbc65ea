import random

import pytest
from pydantic import ValidationError

from hexcloud.adapters.engines.embedded_protocol import GenerateBody, answer
from hexcloud.adapters.engines.embedded_scheduler import Sequence
from hexcloud.domain.generation import FinishKind, GenerationRequest


def body(**fields: object) -> GenerateBody:
    return GenerateBody.model_validate(fields)


def test_one_prompt_is_one_request_under_its_own_name() -> None:
    asked = body(input_ids=[1, 2], rid="a", sampling_params={"max_new_tokens": 5, "stop_token_ids": [2]})
    wanted = GenerationRequest(rid="a", input_ids=(1, 2), max_new_tokens=5, stop_token_ids=(2,))
    assert (asked.is_batch, asked.requests()) == (False, [wanted])


def test_a_batch_shares_or_lists_its_parameters() -> None:
    shared = body(input_ids=[[1], [2]], sampling_params={"temperature": 0.5}, rid="a").requests()
    assert [(one.rid, one.temperature) for one in shared] == [("a_0", 0.5), ("a_1", 0.5)]
    own = body(input_ids=[[1], [2]], sampling_params=[{"max_new_tokens": 1}, {"max_new_tokens": 2}], rid=["x", "y"])
    assert [(one.rid, one.max_new_tokens) for one in own.requests()] == [("x", 1), ("y", 2)]


def test_requests_without_a_name_get_different_ones() -> None:
    assert body(input_ids=[1]).requests()[0].rid != body(input_ids=[1]).requests()[0].rid


def test_fields_of_sglang_that_change_nothing_here_are_ignored() -> None:
    assert body(input_ids=[1], priority=3).prompts == [[1]]


def test_unknown_sampling_parameters_are_not() -> None:
    with pytest.raises(ValidationError):
        body(input_ids=[1], sampling_params={"top_p": 0.9})


def finished(kind: FinishKind, versions: list[str]) -> Sequence:
    count = len(versions)
    request = GenerationRequest(rid="r", input_ids=(1,), max_new_tokens=9)
    sequence = Sequence(request, random.Random(0), tokens=[5] * count, logprobs=[-1.0] * count, versions=versions)
    sequence.end(kind)
    return sequence


def meta(sequence: Sequence) -> dict[str, object]:
    found = answer(sequence, "4", with_logprobs=True)["meta_info"]
    assert isinstance(found, dict)
    return found


def test_spans_say_which_tokens_came_from_which_weights() -> None:
    spans = meta(finished(FinishKind.LENGTH, ["3", "3", "4"]))["weight_versions"]
    assert spans == [{"version": "3", "start": 0, "end": 2}, {"version": "4", "start": 2, "end": 3}]


def test_each_end_has_its_reason() -> None:
    assert meta(finished(FinishKind.STOP, ["3"]))["finish_reason"] == {"type": "stop", "matched": 5}
    assert meta(finished(FinishKind.LENGTH, ["3"]))["finish_reason"] == {"type": "length", "length": 1}
    aborted = meta(finished(FinishKind.ABORT, []))
    assert isinstance(aborted["finish_reason"], dict) and aborted["finish_reason"]["type"] == "abort"
    assert (aborted["completion_tokens"], aborted["weight_versions"]) == (0, [])
