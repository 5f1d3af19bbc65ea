import pytest
from pydantic import ValidationError

from hexcloud.domain.run import RunSpec
from hexcloud.domain.task import Isolation, TaskSpec


def test_a_bare_text_is_the_name() -> None:
    assert RunSpec(task="jsonl:p.jsonl").task == TaskSpec(name="jsonl:p.jsonl")
    assert RunSpec().task.name == "sort_digits"


def test_a_mapping_says_more() -> None:
    spec = RunSpec.model_validate({"task": {"name": "hf:x", "isolation": "limits", "max_new_tokens": 9}})
    assert (spec.task.isolation, spec.task.max_new_tokens) == (Isolation.LIMITS, 9)
    assert RunSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize("task", [{"names": "x"}, {"max_new_tokens": 0}, {"isolation": "none"}])
def test_unknown_fields_and_values_are_refused(task: object) -> None:
    with pytest.raises(ValidationError):
        RunSpec.model_validate({"task": task})
