from pathlib import Path

import pytest

from hexcloud.domain.errors import ConfigError
from hexcloud.domain.task import TaskSpec
from hexcloud.runtime.open_task import open_task
from hexcloud.runtime.tasks import SORT_DIGITS


def test_a_built_in_task_is_found_by_its_name() -> None:
    assert open_task(TaskSpec(), None) is SORT_DIGITS


def test_a_text_task_speaks_the_tokens_of_the_model_that_learns_it(word_folder: Path) -> None:
    rows = word_folder / "rows.jsonl"
    rows.write_text('{"prompt": "add 1 2", "answer": "3"}\n')
    task = open_task(TaskSpec(name=f"jsonl:{rows}", max_new_tokens=7), str(word_folder))
    ids, answer = task.prompt(0, 5)
    assert answer == "3" and task.max_new_tokens == 7 and task.eos_ids == (1,)
    assert ids[0] == 0


def test_a_reasoning_gym_task_is_found_by_its_name(word_folder: Path) -> None:
    assert open_task(TaskSpec(name="reasoning_gym:chain_sum"), str(word_folder)).name == "reasoning_gym:chain_sum"


@pytest.mark.parametrize(
    ("name", "weights", "complaint"),
    [
        ("sort_digit", None, "is unknown; there are sort_digits, reasoning_gym:NAME"),
        ("reasoning_gym:chain_sum", None, "needs a model with a tokenizer: name its folder in `weights:`"),
        ("sort_digits", "model", "leave out weights"),
    ],
)
def test_what_cannot_be_learned_is_refused_with_a_mend(name: str, weights: str | None, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        open_task(TaskSpec(name=name), weights)
