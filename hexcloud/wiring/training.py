"""What can be found wrong with a run's `training:` before anything is rented."""

from pathlib import Path

from hexcloud.domain.errors import ConfigError, EngineError
from hexcloud.domain.run import RunSpec
from hexcloud.domain.training import LayoutKind
from hexcloud.wiring.layouts import is_like


def require_trainable(spec: RunSpec) -> None:
    """Raise ConfigError for a reference that the trainer could not take, or a model that its layout cannot cut.

    Reads configurations, no weights.
    """
    if spec.training.reference is not None:
        _require_reference(spec, spec.training.reference)
    if spec.training.layout is LayoutKind.TP:
        _require_cut(spec)


def absolute_training(spec: RunSpec) -> dict[str, object]:
    """Return the fields of a run's training as they read from any folder."""
    if spec.training.reference is None:
        return {}
    folder = str(Path(spec.training.reference).absolute())
    return {"training": spec.training.model_copy(update={"reference": folder})}


def _require_reference(spec: RunSpec, folder: str) -> None:
    if spec.is_real:
        raise ConfigError(
            f"training.reference: {folder} is a folder of this machine, and files do not travel to rented ones yet; "
            "without it the reference is the policy as RL begins"
        )
    from hexcloud.runtime.trainer_shape import require_alike, shape_of, trained_shape  # here: torch takes seconds

    try:
        require_alike(shape_of(Path(folder)), trained_shape(spec.task, spec.weights))
    except EngineError as error:
        raise ConfigError(
            f"training.reference: {folder!r} is no reference for this run: {error}. Name one of the policy's shape, "
            "or leave it out: then it is the policy as RL begins"
        ) from error


def _require_cut(spec: RunSpec) -> None:
    ranks = spec.training.ranks or (None if spec.is_real else 1)
    if ranks == 1:
        return
    if ranks is None:
        _require_known_cut(spec)
        return
    from hexcloud.runtime.trainer_policy import require_cut  # here: torch takes seconds
    from hexcloud.runtime.trainer_shape import trained_shape

    try:
        require_cut(trained_shape(spec.task, spec.weights), ranks)
    except EngineError as error:
        model = str(Path(spec.weights) / "config.json") if spec.weights else "the task's own model"
        raise ConfigError(
            f"training.layout: tp with training.ranks {ranks} cannot cut {model}: {error}. "
            "Change training.ranks, or set training.layout to fsdp, hsdp or null"
        ) from error


def _require_known_cut(spec: RunSpec) -> None:
    """Raise ConfigError unless the planned model, which a plan sees divided by a machine's GPUs, is the trained one."""
    from hexcloud.adapters.files import find_model

    if spec.weights is None or not is_like(Path(spec.weights), find_model(spec.model)):
        raise ConfigError(
            "training.layout: tp cuts the trained model by the ranks of a machine; a plan sees to it only for "
            f"{spec.model}, which is another: set training.ranks, or training.layout to fsdp, hsdp or null"
        )
