"""What others measured and published, as `benchmarks/published.yaml` holds it: one class per list of that file."""

from pathlib import Path
from typing import Literal

from pydantic import model_validator

from hexcloud.adapters.files import load_yaml
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.model import ModelSpec

FILE = Path(__file__).parents[1] / "published.yaml"
Gpus = dict[str, int]
Kind = Literal["rollout", "training", "system"]


class Source(Frozen):
    """One publication: a paper, or a page."""

    name: str
    title: str


class Job(Frozen):
    """What a source says of its RL job; `tokens_per_sample` by model, prompt included."""

    prompt_tokens: float
    tokens_per_sample: dict[str, float]
    max_response_tokens: int
    eta: int


class Measured(Frozen):
    """A row of a source; `fitted`: kinds of which a factor was read from it."""

    source: str
    model: str = ""
    where: str = ""
    fitted: tuple[Kind, ...] = ()


class EngineRow(Measured):
    """Output tokens/s per GPU of a full engine."""

    gpu: str
    tp: int
    fp8: bool = False
    batch: int | None = None
    prompt_tokens: float
    response_tokens: float
    tokens_per_s: float


class RunRow(Measured):
    """An RL run: a job, samples of a step, and the GPUs of each phase."""

    job: str
    samples: int
    rollout: Gpus
    training: Gpus


class StepRow(RunRow):
    """Seconds of one step's rollout and of its training."""

    rollout_s: float
    training_s: float


class RatioRow(Measured):
    """Time of one rollout on some GPUs over the time on others, as a published range."""

    prompt_tokens: float
    response_tokens: float
    low: float
    high: float
    slow: Gpus
    fast: Gpus


class ScalingRow(Measured):
    """How many times faster more GPUs are at one job; `rollout` or `training` is empty where only the other counts."""

    kind: Kind
    job: str
    samples: int
    few: dict[str, Gpus]
    many: dict[str, Gpus]
    ratio: float


class TrainingRow(Measured):
    """Tokens/s per GPU of plain training."""

    gpu: str
    gpus: int
    sequence: int
    micro_batch: int
    samples: int
    recompute: bool
    tokens_per_s: float


class SystemRow(RunRow):
    """Throughput of a whole system, as tokens/s or as seconds a step."""

    sync_s: float = 0.0
    tokens_per_s: float | None = None
    step_s: float | None = None

    @model_validator(mode="after")
    def _one_figure(self) -> "SystemRow":
        if (self.tokens_per_s is None) == (self.step_s is None):
            raise ValueError("either tokens_per_s or step_s is published")
        return self


class MemoryRow(Frozen):
    """A model that is known to fit some GPUs, or to run out."""

    role: Literal["rollout", "training"]
    where: str
    model: str
    gpu: str
    gpus: int
    sequence: int
    micro_batch: int
    fits: bool


class Published(Frozen):
    """The whole file."""

    sources: tuple[Source, ...]
    jobs: dict[str, Job]
    models: tuple[ModelSpec, ...]
    engines: tuple[EngineRow, ...]
    steps: tuple[StepRow, ...]
    ratios: tuple[RatioRow, ...]
    scaling: tuple[ScalingRow, ...]
    training: tuple[TrainingRow, ...]
    systems: tuple[SystemRow, ...]
    memory: tuple[MemoryRow, ...]


def published() -> Published:
    """Return the file's rows."""
    return load_yaml(FILE, Published)
