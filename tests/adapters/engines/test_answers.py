from typing import Any

import pytest

from hexcloud.adapters.engines.answers import generations_of, version_of
from hexcloud.domain.errors import EngineError
from hexcloud.domain.generation import FinishKind
from tests.adapters.engines.contract import ask

ONE = (ask("r"),)


def answer(tokens: int, logprobs: int, finish: str = "stop", **meta: Any) -> dict[str, Any]:
    own = {"finish_reason": {"type": finish}, "output_token_logprobs": [[-1.0, 5, None]] * logprobs}
    return {"output_ids": [5] * tokens, "meta_info": {**own, "weight_version": "4", **meta}}


def test_spans_say_which_token_came_from_which_weights() -> None:
    spans = [{"version": "3", "start": 0, "end": 2}, {"version": "4", "start": 2, "end": 3}]
    (made,) = generations_of(ONE, [answer(3, 3, weight_versions=spans)])
    assert (made.rid, made.tokens, made.logprobs, made.versions) == ("r", (5, 5, 5), (-1.0,) * 3, (3, 3, 4))


def test_a_server_without_spans_gives_its_last_version_to_every_token() -> None:
    (made,) = generations_of(ONE, [answer(2, 2)])
    assert made.versions == (4, 4)


@pytest.mark.parametrize("meta", [{}, {"weight_versions": None}, {"weight_versions": []}])
def test_a_request_aborted_in_the_queue_has_nothing(meta: dict[str, Any]) -> None:
    aborted = {"output_ids": [], "meta_info": {"finish_reason": {"type": "abort"}, "weight_version": "4", **meta}}
    (made,) = generations_of(ONE, [aborted])
    assert (made.finish, made.tokens, made.versions) == (FinishKind.ABORT, (), ())


@pytest.mark.parametrize(
    "answers",
    [
        None,
        [],
        [answer(1, 1), answer(1, 1)],
        [{"error": "none"}],
        [{"output_ids": [5], "meta_info": {}}],
        [answer(2, 1)],
        [answer(1, 1, finish="bored")],
        [answer(2, 2, weight_versions=[{"version": "3", "start": 0, "end": 1}])],
        "words",
        {"output_ids": [5]},
    ],
)
def test_what_does_not_add_up_is_an_engine_error(answers: Any) -> None:
    with pytest.raises(EngineError, match="not understood"):
        generations_of(ONE, answers)


def test_labels_that_are_no_numbers_name_no_version() -> None:
    assert [version_of(label) for label in ("7", 7, "default", None, "")] == [7, 7, -1, -1, -1]
