"""read_steps: the run's `metrics.jsonl`, one StepRow a line, also while the coordinator still writes it."""

from pathlib import Path

from pydantic import ValidationError

from hexcloud.domain.errors import StoreError
from hexcloud.domain.metrics import StepRow


def read_steps(path: Path) -> tuple[StepRow, ...]:
    """Return the rows in the order in which they were published; none when there is no file yet.

    A last line without its end is still being written and left out. Raises StoreError for a line that is no row.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: {error}") from error
    whole, _, _ = text.rpartition("\n")
    try:
        return tuple(StepRow.model_validate_json(line) for line in whole.splitlines() if line)
    except ValidationError as error:
        raise StoreError(f"{path}: a line is no step: {error}") from error
