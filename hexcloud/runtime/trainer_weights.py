"""The policy on disk: published versions, whole and as what changed, and the run's result.

Both have the precision in which the trainer computes: under bf16 the weights as its own forward pass rounds them, which
keeps most of them as they were from version to version. The fp32 weights stay in its memory and in checkpoints.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog
import torch
from transformers import PreTrainedModel

from hexcloud.domain.errors import EngineError
from hexcloud.domain.messages import DeltaReport, WeightsManifest
from hexcloud.domain.training import Precision
from hexcloud.runtime.delta import make_delta
from hexcloud.runtime.tasks import CharacterTask, Task
from hexcloud.runtime.trainer_model import config_of
from hexcloud.runtime.weights import WeightsFile, write_weights

KEPT = 4
"""The coordinator hands out the newest only; a download that began three versions ago may still finish."""
DELTAS_KEPT = 8
"""A worker that is further behind takes the whole file."""
MOST_OF_WHOLE = 0.5
"""A delta that is no less than this part of the whole costs more, to make and to apply, than its bytes are worth."""
MAX_PAUSE = 64
"""Versions without a try after tries that brought nothing: what a run's deltas weigh changes slowly."""

_RESTORE_TRIES = 40
"""safetensors writes a file's two metadata keys in either order, by chance."""


_TYPES = {Precision.FP32: torch.float32, Precision.BF16: torch.bfloat16}

log = structlog.get_logger()


@dataclass(frozen=True)
class Published:
    """A version on disk."""

    file: WeightsFile
    delta: DeltaReport | None
    """From the version before, where it is a gain."""


class Shelf:
    """`weights/EPOCH-VERSION`, and beside it the deltas that led there, in a run's folder."""

    def __init__(self, run_dir: Path, epoch: int, precision: Precision | None = None) -> None:
        """Begin an epoch. What earlier ones published is never served again and goes."""
        self._folder = run_dir / "weights"
        self._epoch = epoch
        self._precision = precision
        self._before: tuple[Path, WeightsManifest] | None = None
        self._pause, self._pause_left = 0, 0
        shutil.rmtree(self._folder, ignore_errors=True)

    def put(self, model: PreTrainedModel, version: int) -> Published:
        """Write a version, also as what changed where that is a gain, and drop what is now too old.

        Raises EngineError when a weight is not finite: such a policy is never published.
        """
        state, config = _published(model, self._precision)
        if not all(map(is_finite, state.values())):
            raise EngineError(f"version {version} has weights that are not finite")
        file = write_weights(self._path(version), state, config)
        told = WeightsManifest(epoch=self._epoch, version=version, sha256=file.sha256, size=file.size)
        delta = self._delta(file.path, told)
        self._before = file.path, told
        shutil.rmtree(self._path(version - KEPT), ignore_errors=True)
        self._delta_path(version - DELTAS_KEPT).unlink(missing_ok=True)
        return Published(file, delta)

    def restore(self, model: PreTrainedModel, lost: WeightsFile) -> None:
        """Write the file of the version that the model still is anew. Raises EngineError when it can't be had again."""
        state, config = _published(model, self._precision)
        for _ in range(_RESTORE_TRIES):
            shutil.rmtree(lost.path.parent, ignore_errors=True)
            if write_weights(lost.path.parent, state, config).sha256 == lost.sha256:
                return
        raise EngineError(f"{lost.path} is damaged and can't be written as it was")

    def _delta(self, path: Path, told: WeightsManifest) -> DeltaReport | None:
        """Write the delta to a version; after each try without gain, wait twice as long before the next."""
        if self._before is None or self._before[1].version >= told.version:
            return None
        if self._pause_left:
            self._pause_left -= 1
            return None
        target = self._delta_path(told.version)
        try:
            delta = make_delta(self._before, (path, told), target, MOST_OF_WHOLE)
        except (EngineError, OSError) as error:  # a damaged base; the whole version stands for itself
            log.warning("no_delta", version=told.version, reason=str(error))
            return None
        self._pause = 0 if delta else min(MAX_PAUSE, 2 * self._pause + 1)
        self._pause_left = self._pause
        return DeltaReport(path=str(target), delta=delta) if delta else None

    def _delta_path(self, version: int) -> Path:
        return self._folder / f"{self._epoch}-{version}.delta"

    def _path(self, version: int) -> Path:
        return self._folder / f"{self._epoch}-{version}"


def is_finite(tensor: torch.Tensor) -> bool:
    """Is every value a number? Told from the least and the greatest: 80 times as fast as a look at each (bf16)."""
    return not tensor.numel() or bool(torch.stack(torch.aminmax(tensor.detach())).isfinite().all())


_VOCABULARY = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "generation_config.json",
)


def vocabulary_files(task: Task, weights: str | None) -> dict[str, str]:
    """Return what turns texts into a model's ids, file by file: of the folder it came from, or of the task."""
    if isinstance(task, CharacterTask):
        return {"vocab.json": json.dumps({text: index for index, text in enumerate(task.vocabulary)})}
    folder = Path(weights or "")
    return {name: (folder / name).read_text() for name in _VOCABULARY if (folder / name).exists()}


def deliver(
    output: Path, model: PreTrainedModel, vocabulary: dict[str, str], precision: Precision | None = None
) -> None:
    """Write the final model into a folder that may hold other things: each file whole, the weights last."""
    state, config = _published(model, precision)
    output.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=output, prefix=".draft-") as draft:
        folder = Path(draft) / "model"
        write_weights(folder, state, config, vocabulary)
        for name in ("config.json", *vocabulary, "model.safetensors"):
            (folder / name).replace(output / name)


def _published(
    model: PreTrainedModel, precision: Precision | None
) -> tuple[dict[str, torch.Tensor], dict[str, object]]:
    """Return state and configuration as they are published; what is not a floating-point number stays as it is."""
    kind = _TYPES[precision or Precision.FP32]
    state = {
        name: (tensor.detach().to(kind) if tensor.is_floating_point() else tensor.detach()).cpu()
        for name, tensor in model.state_dict().items()
    }
    return state, config_of(model) | {"dtype": str(kind).removeprefix("torch.")}
