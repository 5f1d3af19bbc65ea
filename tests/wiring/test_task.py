from pathlib import Path

import pytest

from hexcloud.domain.errors import ConfigError
from hexcloud.domain.run import RunSpec
from hexcloud.domain.task import TaskSpec
from hexcloud.wiring.task import absolute_task, files_of, require_task, require_usable_task
from tests.runtime.words import make_word_folder


def test_a_misspelt_task_or_reward_is_found_without_reading_anything() -> None:
    with pytest.raises(ConfigError, match="did you mean sort_digits"):
        require_task(TaskSpec(name="sort_digit"))
    with pytest.raises(ConfigError, match="reward 'maths' is unknown"):
        require_task(TaskSpec(reward="maths"))
    require_task(TaskSpec(name="jsonl:there/is/none.jsonl"))


def test_the_default_task_is_usable() -> None:
    require_usable_task(RunSpec())


def test_a_task_is_opened_as_the_nodes_will(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.jsonl cannot be read"):
        require_usable_task(RunSpec(task=f"jsonl:{tmp_path}/none.jsonl"))
    (tmp_path / "verify.py").write_text("def verify(response, answer): return 1")
    require_usable_task(RunSpec(task={"reward": f"python:{tmp_path}/verify.py"}))
    (tmp_path / "verify.py").write_text("def check(response, answer): return 1")
    with pytest.raises(ConfigError, match="KeyError: 'verify'"):
        require_usable_task(RunSpec(task={"reward": f"python:{tmp_path}/verify.py"}))


@pytest.mark.parametrize(
    ("engine", "context", "is_refused"),
    [("embedded", 40, False), ("embedded", 39, True), ("sglang", 42, False), ("sglang", 41, True)],
)
def test_samples_that_do_not_fit_the_models_context_are_refused_before_anything_is_rented(
    engine: str, context: int, is_refused: bool, tmp_path: Path
) -> None:
    folder = make_word_folder(tmp_path / "model")
    (folder / "config.json").write_text(f'{{"vocab_size": 64, "max_position_embeddings": {context}}}')
    (tmp_path / "p.jsonl").write_text('{"prompt": "add 1 2", "answer": "3"}\n')
    task = {"name": f"jsonl:{tmp_path}/p.jsonl", "max_prompt_tokens": 32, "max_new_tokens": 8}
    spec = RunSpec(task=task, weights=str(folder), engine=engine)
    if not is_refused:
        return require_usable_task(spec)
    with pytest.raises(ConfigError, match=rf"max_new_tokens 8.* tokens, and the model in .* takes {context}"):
        require_usable_task(spec)


def test_files_of_this_machine_do_not_travel_to_rented_ones(tmp_path: Path) -> None:
    spec = RunSpec(task=f"jsonl:{tmp_path}/p.jsonl", provider="skypilot", store="s3://b/p")
    with pytest.raises(ConfigError, match="do not travel"):
        require_usable_task(spec)


def test_a_stored_run_finds_its_files_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spec = RunSpec(task={"name": "jsonl:p.jsonl", "reward": "python:v.py"}, weights="model")
    changed = spec.model_copy(update=absolute_task(spec))
    assert changed.task == TaskSpec(name=f"jsonl:{tmp_path}/p.jsonl", reward=f"python:{tmp_path}/v.py")
    assert files_of(changed) == [f"{tmp_path}/p.jsonl", f"{tmp_path}/v.py", f"{tmp_path}/model"]
    assert absolute_task(RunSpec()) == {"task": TaskSpec(), "weights": None}
    cached = RunSpec(task="hf:openai/gsm8k:train")
    assert absolute_task(cached)["task"] == cached.task
