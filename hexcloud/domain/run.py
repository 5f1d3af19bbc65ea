"""RunSpec: what `run.yaml` says. RunRecord: what the store knows about a run."""

import re
from enum import StrEnum

from pydantic import Field, field_validator, model_validator

from hexcloud.domain.fleet import RunId
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.generation import EngineKind
from hexcloud.domain.plan import Allocation
from hexcloud.domain.policy import Policy, ReplanSchedule
from hexcloud.domain.task import TaskSpec
from hexcloud.domain.training import Precision, TrainingSpec
from hexcloud.domain.workload import Workload

MAX_NAME = 40
"""Letters of a run's name: it is part of the names of folders and machines."""
MAX_TOKENS = 10_000_000
"""Of a prompt or a response: no model reads so many, and figures made of it stay finite."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_REGION = re.compile(r"[^/\s]+/[^/\s]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LOCAL = "local"
"""The provider whose machines are processes on this computer."""


class RunSpec(Frozen):
    """One run, as the user writes it. Flags of `hexcloud up` override single fields."""

    name: str = "main"
    model: str = "Qwen2.5-7B"
    """Name in the model catalog."""
    task: TaskSpec = TaskSpec()
    """What the policy learns: a name, or a mapping that names more."""
    weights: str | None = None
    """Hugging Face folder of the model to train; null: the task's own tiny policy."""
    engine: EngineKind = EngineKind.EMBEDDED
    """What generates on rollout nodes: `embedded`, or `sglang` from an environment of its own."""
    batch: int = Field(default=256, gt=0)
    """Samples per training step."""
    group: int = Field(default=8, gt=1)
    """Samples per prompt. The loss compares them, so one alone would teach nothing."""
    eta: int = Field(default=4, ge=0)
    prompt_tokens: float = Field(default=512, gt=0, le=MAX_TOKENS, allow_inf_nan=False)
    response_tokens: float = Field(default=1536, gt=0, le=MAX_TOKENS, allow_inf_nan=False)
    replace_zero_variance: bool = False
    """Generate another group for one whose samples all earned the same (ADR 0004): costs rollout, fills every step."""
    target: str | None = None
    """`20k` (trained tok/s), `5 steps/min` or `3 samples/s`."""
    max_usd_per_hour: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    budget: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """USD for the whole run."""
    policy: str = "cheapest"
    """Name in `policies/`, or a path to a YAML file."""
    cloud: tuple[str, ...] = ()
    """Empty: every cloud of the catalog."""
    provider: str = LOCAL
    """Who rents the machines: `local` emulates them on this one, `skypilot` rents real ones."""
    store: str | None = None
    """URL of the bucket in which real machines meet: `s3://bucket/prefix`, `gs://...`; required where they are real."""
    weights_stores: dict[str, str] = Field(default_factory=dict)
    """`CLOUD/REGION` -> URL of a store there, through which weights come to the rollout nodes of that region."""
    pass_env: tuple[str, ...] = ()
    """Names of variables of this environment that the machines need, such as keys of the store; they travel as secrets.
    """
    trace: str | None = "demo"
    """Price trace played over the market: a name in `catalogs/traces/`, `PATH[@START][=OFFERS]`, or null for none.
    Real machines have real prices: with another provider than `local` it is null."""
    refresh: str | None = "10m"
    """How often the clouds' live prices are read while real machines run, such as `10m`; null: never."""
    replan: ReplanSchedule | None = None
    """Overrides the policy's schedule."""
    steps: int = Field(default=400, gt=0)
    seed: int = Field(default=0, ge=0, lt=2**63)
    training: TrainingSpec = TrainingSpec()
    output: str | None = None
    """Folder for the final HF model and checkpoints; default: in the run's own folder."""

    @property
    def is_real(self) -> bool:
        """Are the machines rented, and money spent?"""
        return self.provider != LOCAL

    @property
    def precision(self) -> Precision:
        """In what the run's trainer computes and publishes."""
        return self.training.precision or (Precision.BF16 if self.is_real else Precision.FP32)

    @property
    def recomputes_activations(self) -> bool:
        """Does the run's trainer compute activations again in its backward passes?"""
        asked = self.training.activation_checkpointing
        return self.is_real if asked is None else asked

    @model_validator(mode="before")
    @classmethod
    def _with_real_prices(cls, data: object) -> object:
        """Only emulated machines have a trace unless told otherwise."""
        is_real = isinstance(data, dict) and data.get("provider", LOCAL) != LOCAL
        return {"trace": None, **data} if isinstance(data, dict) and is_real else data

    @field_validator("pass_env")
    @classmethod
    def _are_variables(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        """A value in the place of a name would be stored with the run, and it may be a secret."""
        if not all(_VARIABLE.fullmatch(name) for name in names):
            raise ValueError("only names of environment variables, such as AWS_ENDPOINT_URL, and no values")
        return names

    @field_validator("weights_stores")
    @classmethod
    def _are_regions(cls, stores: dict[str, str]) -> dict[str, str]:
        for region in stores:
            if not _REGION.fullmatch(region):
                raise ValueError(f"{region!r} is no CLOUD/REGION, such as aws/us-east-1")
        return stores

    @field_validator("name")
    @classmethod
    def _is_file_name(cls, name: str) -> str:
        """A run's folder is called after it, so a name must not lead out of the folder of runs."""
        if len(name) > MAX_NAME or not _NAME.fullmatch(name):
            raise ValueError(f"a name is at most {MAX_NAME} letters, digits, '.', '_' and '-', first a letter or digit")
        return name

    @field_validator("target", mode="before")
    @classmethod
    def _as_text(cls, target: object) -> object:
        """Without a unit YAML reads a target as a number."""
        return str(target) if isinstance(target, int | float) and not isinstance(target, bool) else target


class RunState(StrEnum):
    """A run's life, in the store."""

    RUNNING = "running"
    STOPPING = "stopping"
    """Somebody asked it to end (`down`, Ctrl-C, budget)."""
    DONE = "done"
    FAILED = "failed"


class RunRecord(Frozen):
    """A run as stored. `workload` and `policy` are resolved: what the controller works with."""

    id: RunId
    spec: RunSpec
    workload: Workload
    policy: Policy
    state: RunState
    created_wall_s: float
    clock_origin_run_s: float
    """Run clock at `clock_origin_wall_s`; with the scale it is the whole run clock, also after a restart."""
    clock_origin_wall_s: float
    clock_scale: float = 1.0
    agreed: Allocation | None = None
    """What its user said yes to: the machines that the first plan has to beat. None: a run of an older version."""
    run_dir: str
    output: str
    reason: str = ""
    """Why it is stopping, done or failed."""
