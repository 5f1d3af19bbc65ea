from pathlib import Path

import pytest

from hexcloud.domain.errors import ConfigError
from hexcloud.domain.task import TaskSpec
from hexcloud.runtime.problems import Problem, Rows
from hexcloud.runtime.text_task import TextTask
from hexcloud.runtime.text_tokenizer import TextTokenizer

ROWS = Rows(tuple(Problem("add " * length, str(length)) for length in (1, 40)))


def task(folder: Path, spec: TaskSpec) -> TextTask:
    return TextTask(spec, ROWS, TextTokenizer(folder))


def test_a_prompt_is_the_question_as_the_model_reads_it_and_its_answer(word_folder: Path) -> None:
    opened = task(word_folder, TaskSpec(name="jsonl:x", max_prompt_tokens=100))
    ids, answer = opened.prompt(0, 0)
    assert opened.tokenizer.decode(ids).split().count("add") == int(answer)


def test_a_prompt_that_is_too_long_is_passed_over(word_folder: Path) -> None:
    opened = task(word_folder, TaskSpec(name="jsonl:x", max_prompt_tokens=20))
    assert {opened.prompt(0, index)[1] for index in range(20)} == {"1"}


def test_when_all_are_too_long_the_limit_is_named(word_folder: Path) -> None:
    with pytest.raises(ConfigError, match="over 2 tokens; raise `max_prompt_tokens`"):
        task(word_folder, TaskSpec(name="jsonl:x", max_prompt_tokens=2)).prompt(0, 0)


def test_a_response_counts_when_it_has_ended(word_folder: Path) -> None:
    opened = task(word_folder, TaskSpec(name="jsonl:x"))
    ids = opened.tokenizer.prompt("add add", "", chat=False)
    assert opened.response((*ids, *opened.eos_ids)) == "add add"
    assert opened.response(ids) is None
    assert opened.response(()) is None
    assert opened.max_new_tokens == 256
