"""open_task: a task by its name, on the machine that is to use it."""

from pathlib import Path

from hexcloud.domain.errors import ConfigError
from hexcloud.domain.task import TaskSpec
from hexcloud.runtime.problem_rows import read_hf, read_jsonl
from hexcloud.runtime.problems import Gym, Problems
from hexcloud.runtime.tasks import TASKS, Task
from hexcloud.runtime.text_task import TextTask
from hexcloud.runtime.text_tokenizer import TextTokenizer

GYM, JSONL, HF = "reasoning_gym:", "jsonl:", "hf:"
KINDS = (GYM, JSONL, HF)
"""How the names of text tasks begin."""


def open_task(spec: TaskSpec, weights: str | None) -> Task:
    """Return a task; `weights` is the Hugging Face folder of the model that learns it. Raises ConfigError."""
    if spec.name in TASKS:
        if weights:
            raise ConfigError(
                f"task: {spec.name} has an alphabet of its own and trains no other model; leave out weights"
            )
        return TASKS[spec.name]
    problems = open_problems(spec)
    if not weights:
        raise ConfigError(
            f"task: {spec.name} is text and needs a model with a tokenizer: name its folder in `weights:`"
        )
    return TextTask(spec, problems, TextTokenizer(Path(weights)))


def open_problems(spec: TaskSpec) -> Problems:
    """Return the problems of a text task. Raises ConfigError."""
    name = spec.name
    if name.startswith(GYM):
        return Gym(name.removeprefix(GYM))
    if name.startswith(JSONL):
        return read_jsonl(Path(name.removeprefix(JSONL)), spec)
    if name.startswith(HF):
        return read_hf(name.removeprefix(HF), spec)
    known = ", ".join([*TASKS, f"{GYM}NAME", f"{JSONL}FILE", f"{HF}DATASET[:SPLIT]"])
    raise ConfigError(f"task: {name!r} is unknown; there are {known}")
