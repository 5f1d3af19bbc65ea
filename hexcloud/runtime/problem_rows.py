"""Rows of a user's own problems: a JSONL file, or a Hugging Face dataset that is on this machine already."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from hexcloud.domain.errors import ConfigError
from hexcloud.domain.task import TaskSpec
from hexcloud.runtime.problems import Problem, Rows


def read_jsonl(path: Path, spec: TaskSpec) -> Rows:
    """Read one object per line. Raises ConfigError naming file, line and field."""
    try:
        # At \n only: a text may hold what else ends a line for str.splitlines (U+2028, U+0085).
        lines = path.read_bytes().decode().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"task: {path} cannot be read: {error}") from error
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    return _rows(((f"{path}:{number}", _parse(f"{path}:{number}", line)) for number, line in numbered), spec, str(path))


def read_hf(name: str, spec: TaskSpec) -> Rows:
    """Read `DATASET[:SPLIT]`: a folder of `save_to_disk`, a parquet file, or a name in the local cache.

    Nothing is downloaded. Raises ConfigError.
    """
    dataset, _, split = name.partition(":")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the library is imported
    os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise ConfigError("task: hf datasets need `pip install hexcloud[hf]`") from error
    path = Path(dataset)
    try:
        if path.is_dir() and any((path / file).exists() for file in ("state.json", "dataset_dict.json")):
            found = datasets.load_from_disk(dataset)
            rows = found[split or "train"] if isinstance(found, datasets.DatasetDict) else found
        elif path.suffix == ".parquet":
            rows = datasets.load_dataset("parquet", data_files=dataset, split="train")
        else:
            rows = datasets.load_dataset(dataset, split=split or "train")
    except Exception as error:  # the library raises what its many sources raise
        raise ConfigError(f"task: dataset {name} is not on this machine or cannot be read: {error}") from error
    return _rows(((f"{name}, row {number}", row) for number, row in enumerate(rows)), spec, name)


def _parse(where: str, line: str) -> Mapping[str, object]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from error
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: a row must be an object with {{...}}, this is {type(row).__name__}")
    return row


def _rows(found: Iterable[tuple[str, Mapping[str, object]]], spec: TaskSpec, source: str) -> Rows:
    rows = tuple(Problem(_prompt(where, row, spec), _answer(where, row, spec)) for where, row in found)
    if not rows:
        raise ConfigError(f"task: {source} has no row")
    return Rows(rows)


def _prompt(where: str, row: Mapping[str, object], spec: TaskSpec) -> str:
    text = _field(where, row, spec.prompt, "prompt")
    if not isinstance(text, str) or not text:
        raise ConfigError(f"{where}: {spec.prompt} must be a text that is not empty, got {text!r:.60}")
    return text


def _answer(where: str, row: Mapping[str, object], spec: TaskSpec) -> str:
    """Return the answer as text; what is no text or number travels to the verifier as JSON."""
    value = _field(where, row, spec.answer, "answer")
    if value is None:
        raise ConfigError(f"{where}: {spec.answer} is null")
    return value if isinstance(value, str) else json.dumps(value)


def _field(where: str, row: Mapping[str, object], name: str, meaning: str) -> object:
    if name not in row:
        fields = ", ".join(map(str, row)) or "none"
        raise ConfigError(
            f"{where}: no field {name!r} for the {meaning} (fields: {fields}); name it with `{meaning}:` under `task:`"
        )
    return row[name]
