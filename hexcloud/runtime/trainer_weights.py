"""The policy on disk: published versions, the newest few kept for slow downloaders, and the run's result."""

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from transformers import PreTrainedModel

from hexcloud.domain.errors import EngineError
from hexcloud.runtime.tasks import Task
from hexcloud.runtime.trainer_model import config_of
from hexcloud.runtime.weights import WeightsFile, write_weights

_KEPT = 4
"""The coordinator hands out the newest only; a download that began three versions ago may still finish."""

_RESTORE_TRIES = 40
"""safetensors writes a file's two metadata keys in either order, by chance."""


class Shelf:
    """`weights/EPOCH-VERSION` in a run's folder."""

    def __init__(self, run_dir: Path, epoch: int) -> None:
        """Begin an epoch. What earlier ones published is never served again and goes."""
        self._folder = run_dir / "weights"
        self._epoch = epoch
        shutil.rmtree(self._folder, ignore_errors=True)

    def put(self, model: PreTrainedModel, version: int) -> WeightsFile:
        """Write a version and drop the one that is now too old.

        Raises EngineError when a weight is not finite: such a policy is never published.
        """
        if not all(bool(tensor.isfinite().all()) for tensor in model.state_dict().values()):
            raise EngineError(f"version {version} has weights that are not finite")
        file = write_weights(self._path(version), model.state_dict(), config_of(model))
        shutil.rmtree(self._path(version - _KEPT), ignore_errors=True)
        return file

    def restore(self, model: PreTrainedModel, lost: WeightsFile) -> None:
        """Write the file of the version that the model still is anew. Raises EngineError when it can't be had again."""
        for _ in range(_RESTORE_TRIES):
            shutil.rmtree(lost.path.parent, ignore_errors=True)
            if write_weights(lost.path.parent, model.state_dict(), config_of(model)).sha256 == lost.sha256:
                return
        raise EngineError(f"{lost.path} is damaged and can't be written as it was")

    def _path(self, version: int) -> Path:
        return self._folder / f"{self._epoch}-{version}"


def deliver(output: Path, model: PreTrainedModel, task: Task) -> None:
    """Write the final model into a folder that may hold other things: each file whole, the weights last."""
    output.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=output, prefix=".draft-") as draft:
        vocabulary = {text: index for index, text in enumerate(task.vocabulary)}
        folder = Path(draft) / "model"
        write_weights(folder, model.state_dict(), config_of(model), {"vocab.json": json.dumps(vocabulary)})
        for name in ("config.json", "vocab.json", "model.safetensors"):
            (folder / name).replace(output / name)
