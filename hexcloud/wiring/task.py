"""What can be found wrong with a run's task before anything is rented."""

from pathlib import Path

from hexcloud.domain.errors import ConfigError, EngineError
from hexcloud.domain.generation import EngineKind
from hexcloud.domain.run import RunSpec
from hexcloud.domain.task import TaskSpec

_SGLANG_KEEPS = 2
"""Tokens before the end of the model's context at which SGLang ends a sequence (0.5.23)."""


def require_task(task: TaskSpec) -> None:
    """Raise ConfigError for a task or reward of no known kind. Reads nothing."""
    from hexcloud.adapters.files import suggest
    from hexcloud.runtime.open_task import KINDS
    from hexcloud.runtime.rewards import reward_of
    from hexcloud.runtime.tasks import TASKS

    if task.name not in TASKS and not task.name.startswith(KINDS):
        raise ConfigError(f"task: {task.name!r} is unknown{suggest(task.name, [*TASKS, *KINDS])}")
    reward_of(task)


def require_usable_task(spec: RunSpec) -> None:
    """Open the task, draw a prompt and try the verifier, as the run's nodes will. Raises ConfigError."""
    from hexcloud.runtime.open_task import open_task
    from hexcloud.runtime.rewards import Scorer

    here = files_of(spec)
    if spec.is_real and here:
        raise ConfigError(f"task: {here[0]} is a file of this machine, and files do not travel to rented ones yet")
    task = open_task(spec.task, spec.weights)
    if spec.weights:
        _require_room(spec, Path(spec.weights), task.max_new_tokens)
    task.prompt(spec.seed, 0)
    Scorer(task, spec.task).close()


def _require_room(spec: RunSpec, folder: Path, max_new_tokens: int) -> None:
    """Raise ConfigError unless the longest sample fits into the model's context: engines refuse one that does not."""
    from hexcloud.adapters.engines.model_folder import read_context

    try:
        context = read_context(folder)
    except EngineError as error:
        raise ConfigError(f"weights: {error}") from error
    kept = _SGLANG_KEEPS if spec.engine is EngineKind.SGLANG else 0
    needed = spec.task.max_prompt_tokens + max_new_tokens + kept
    if context is not None and needed > context:
        beside = f" and {kept} that SGLang keeps" if kept else ""
        raise ConfigError(
            f"task: max_prompt_tokens {spec.task.max_prompt_tokens} and max_new_tokens {max_new_tokens}{beside} are "
            f"{needed} tokens, and the model in {folder} takes {context} (max_position_embeddings): lower one of them"
        )


def absolute_task(spec: RunSpec) -> dict[str, object]:
    """Return the fields of a run's task and weights as they read from any folder."""
    changes = {key: f"{kind}{Path(path).absolute()}" for key, kind, path in _files(spec.task)}
    weights = str(Path(spec.weights).absolute()) if spec.weights else None
    return {"task": spec.task.model_copy(update=changes), "weights": weights}


def files_of(spec: RunSpec) -> list[str]:
    """Return the files and folders that a run's task needs."""
    return [path for _, _, path in _files(spec.task)] + ([spec.weights] if spec.weights else [])


def _files(task: TaskSpec) -> list[tuple[str, str, str]]:
    """Return (field, what stands before the path, path) of every field that names a file."""
    from hexcloud.runtime.open_task import HF, JSONL
    from hexcloud.runtime.rewards import PYTHON

    kinds = [("name", JSONL, task.name), ("name", HF, task.name), ("reward", PYTHON, task.reward or "")]
    named = [(field, kind, value.removeprefix(kind)) for field, kind, value in kinds if value.startswith(kind)]
    # A data set may be a name in the cache instead.
    return [one for one in named if one[1] != HF or Path(one[2].partition(":")[0]).exists()]
