"""Calibration: every efficiency factor the estimator uses, as data with its source (`catalogs/calibration.yaml`)."""

from enum import StrEnum

from pydantic import Field

from hexcloud.domain.frozen import Frozen
from hexcloud.domain.model import ModelSpec

ANY = "*"
"""Stands for every GPU."""
_SMALL_PARAMS, _MEDIUM_PARAMS = 3e9, 10e9


class Phase(StrEnum):
    """What a GPU does; it may be good at one and poor at the other."""

    ROLLOUT = "rollout"
    TRAINING = "training"


class ModelClass(StrEnum):
    """How large a model is: kernels that suit one size may not suit another."""

    SMALL = "small"
    """Under 3B parameters."""
    MEDIUM = "medium"
    """Up to 10B."""
    LARGE = "large"
    ANY = "*"


def class_of(model: ModelSpec) -> ModelClass:
    """Return the class of a model."""
    if model.params < _SMALL_PARAMS:
        return ModelClass.SMALL
    return ModelClass.MEDIUM if model.params <= _MEDIUM_PARAMS else ModelClass.LARGE


class Efficiency(Frozen):
    """Shares of a GPU's data-sheet figures that real kernels reach. `gpu` is `*` for the default."""

    gpu: str
    bandwidth: float = Field(gt=0, le=1)
    """e_m: share of HBM bandwidth while decoding."""
    compute: float = Field(gt=0, le=1)
    """e_c: share of dense FLOPS in prefill and decode matmuls."""
    mfu: float = Field(gt=0, le=1)
    """Share of dense FLOPS in training, within one node."""
    mfu_decay: float = Field(default=0.0, ge=0, lt=1)
    """Share of mfu lost per doubling of GPUs beyond eight."""
    rollout_speed: float = Field(default=1.0, gt=0)
    """Measured over estimated speed of rollout; `Calibration.of` sets it from the factors."""
    training_speed: float = Field(default=1.0, gt=0)
    """The same for training."""
    source: str


class Factor(Frozen):
    """What was measured of one GPU, phase and class of models, over what the estimator says without it."""

    gpu: str
    """`*`: every GPU."""
    phase: Phase
    model_class: ModelClass = ModelClass.ANY
    speed: float = Field(gt=0)
    """Measured over estimated speed."""
    source: str

    @property
    def key(self) -> tuple[str, Phase, ModelClass]:
        """What it is about; of two factors with one key the later counts."""
        return self.gpu, self.phase, self.model_class


class Calibration(Frozen):
    """Efficiencies, and priors that the run's own events refine later."""

    efficiencies: tuple[Efficiency, ...]
    factors: tuple[Factor, ...] = ()
    startup_s: float = Field(default=300, ge=0)
    """From the provider's yes to the first heartbeat."""
    spot_interruptions_per_hour: float = Field(default=0.05, ge=0)
    restart_s: float = Field(default=300, ge=0)
    """Work lost and time to resume when the trainer's gang is lost."""
    source: str

    def of(self, gpu: str, model: ModelSpec | None = None) -> Efficiency:
        """Return the efficiencies of a GPU, or the default row; with the measured speeds for a model's class."""
        rows = {row.gpu: row for row in self.efficiencies}
        row = rows.get(gpu) or rows[ANY]
        speeds = {factor.key: factor.speed for factor in self.factors if factor.gpu in (gpu, ANY)}
        if not speeds:
            return row
        model_class = ModelClass.ANY if model is None else class_of(model)
        # A GPU's own before every GPU's, then a class before every class.
        about = [(one, size) for one in (gpu, ANY) for size in (model_class, ModelClass.ANY)]
        found: dict[str, float] = {}
        for phase in Phase:
            known = [speeds[key] for one, size in about if (key := (one, phase, size)) in speeds]
            found |= {f"{phase.value}_speed": speed for speed in known[:1]}
        return row.model_copy(update=found)

    def with_factors(self, factors: tuple[Factor, ...]) -> "Calibration":
        """Return the calibration with factors that win over its own of the same key."""
        return self.model_copy(update={"factors": (*self.factors, *factors)})

    def without_factors(self) -> "Calibration":
        """Return the calibration without any: what a measurement is compared with."""
        return self.model_copy(update={"factors": ()})
