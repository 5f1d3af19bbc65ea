import random

import pytest

from hexcloud.runtime.tasks import BOS_ID, EOS_ID, SORT_DIGITS, TASKS, CharacterTask


def test_sorting_has_the_measured_alphabet_of_21_ids() -> None:
    assert len(SORT_DIGITS.vocabulary) == 21
    assert SORT_DIGITS.vocabulary[:3] == ("<pad>", "<bos>", "<eos>")


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_every_task_is_registered_under_its_own_name(task: CharacterTask) -> None:
    assert TASKS[task.name] is task


def test_decode_undoes_encode() -> None:
    for _, answer in (SORT_DIGITS.prompt(0, index) for index in range(50)):
        assert SORT_DIGITS.decode(SORT_DIGITS.encode(answer)) == answer


def test_the_answer_is_the_question_sorted() -> None:
    for index in range(100):
        prompt_ids, answer = SORT_DIGITS.prompt(1, index)
        question = SORT_DIGITS.decode(prompt_ids)
        assert prompt_ids[0] == BOS_ID
        assert question[-1] == ">" and 3 <= len(question) - 1 <= 8
        assert answer == "".join(sorted(question[:-1]))


def test_a_prompt_follows_from_seed_and_index_alone() -> None:
    drawn = [SORT_DIGITS.prompt(7, index) for index in range(20)]
    assert [SORT_DIGITS.prompt(7, index) for index in reversed(range(20))] == drawn[::-1]
    assert len(set(drawn)) == 20
    assert SORT_DIGITS.prompt(8, 0) != drawn[0]


def test_a_response_is_its_text_and_none_when_it_has_not_ended_or_holds_ids_without_text() -> None:
    ids = SORT_DIGITS.encode("13")
    assert SORT_DIGITS.response((*ids, EOS_ID)) == "13"
    assert SORT_DIGITS.response((EOS_ID,)) == ""
    for broken in ((), ids, (BOS_ID, *ids, EOS_ID), (*ids, EOS_ID, EOS_ID)):
        assert SORT_DIGITS.response(broken) is None


def test_demonstrations_end_with_eos_and_fit_the_token_limit() -> None:
    rng = random.Random(2)
    lengths = []
    for _ in range(2000):
        _, response = SORT_DIGITS.demonstration(rng)
        assert response[-1] == EOS_ID
        lengths.append(len(response))
    assert max(lengths) <= SORT_DIGITS.max_new_tokens
    assert sum(lengths) / len(lengths) == pytest.approx(SORT_DIGITS.mean_response_tokens, rel=0.03)


def test_unknown_characters_are_refused() -> None:
    with pytest.raises(ValueError):
        SORT_DIGITS.encode("abc")
