"""How wrong is the estimator? It predicts what others measured and published, and what is known to fit or run out.

Each source gets one free scale per kind of row (it has another engine, another trainer, lengths it does not print),
fitted on its other models only: what is left is how speed changes with model, GPU, batch, length and number of GPUs.
Bars: half of the rollout rows within 15 %, half of the end-to-end rows within 25 %, no mistake about memory; rows from
which a factor was read do not count. Training rows have no bar: published trainers differ by more on equal GPUs.
"""

import json
import math
import statistics
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hexcloud.adapters.files import load_calibration, load_gpus, load_models, load_yaml
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.model import ModelSpec
from hexcloud.domain.workload import Workload
from hexcloud.estimate import rollout, training
from hexcloud.estimate.memory import largest_batch, largest_micro_batch
from hexcloud.estimate.rollout import Replica
from hexcloud.estimate.training import Gang

PUBLISHED = Path(__file__).parent / "published.yaml"
ROLLOUT_BAR, SYSTEM_BAR = 0.15, 0.25
NODE_GPUS, MAX_MICRO_BATCH = 8, 16
MAX_BATCH, MAX_BENCH_BATCH = 256, 2048
"""Running samples per replica: of RL engines, and of trtllm-bench."""
HEX_NETWORK_GB_PER_S, FAST_NETWORK_GB_PER_S = 5.0, 200.0
"""Of one machine. AReaL-Hex prints 5 GB/s; the other trainers have 400 to 3200 Gbit/s."""
STEP_SAMPLES = 256
KINDS = ("rollout", "training", "system")
LONG_NAMES = {size: f"DeepSeek-R1-Distill-Qwen-{size}" for size in ("1.5B", "7B", "14B")} | {"32B": "Qwen2.5-32B"}
WHY_TRAINING_IS_OFF = """
Why training is off. (1) AReaL-Hex contradicts itself: by figure 2 an H20 trains at 0.112 of an H800 on 64 GPUs (table 1
rests on it), by figure 4 some 50 reach a third to two thirds of that; the catalog believes the slower, so the H20 rows
of figure 2 come out up to 2.4x too slow. (2) Its 7B trains 1.9x slower than its 1.5B, where FLOPs say 3.5x, and its 14B
3.2x slower than its 7B, where FLOPs say 2.1x: no efficiency that grows with size fits both. (3) Its 24 H800 + 24 H20
are up to twice as fast as its own homogeneous rows add up to. (4) Published trainers recompute activations at half the
price of a forward pass (30B, 34B, 70B: up to 27 % too slow here), as that makes room for larger micro-batches; counted
so, the median would be 12 %, but plans keep the slack. (5) MPT-760M, and MPT-1B at 32k, reach less than larger models.
Why rollout is off where it is: engines of 2023 read a grouped-query cache (70B, 180B) slowly; (3) above; and figure 4's
H20 are half as fast as figure 2's."""

Gpus = dict[str, int]


class Source(Frozen):
    name: str
    title: str
    phases: str | None = None


class Job(Frozen):
    prompt_tokens: float
    tokens_per_sample: float
    max_response_tokens: int
    eta: int


class Measured(Frozen):
    source: str
    model: str = ""
    where: str = ""
    fitted: tuple[str, ...] = ()


class EngineRow(Measured):
    gpu: str
    tp: int
    fp8: bool = False
    batch: int | None = None
    prompt_tokens: float
    response_tokens: float
    tokens_per_s: float


class StepRow(Measured):
    rollout: Gpus
    training: Gpus
    rollout_s: float
    training_s: float


class RatioRow(Measured):
    prompt_tokens: float
    response_tokens: float
    low: float
    high: float
    slow: Gpus
    fast: Gpus


class TrainingRow(Measured):
    gpu: str
    gpus: int
    sequence: int
    micro_batch: int
    samples: int
    recompute: bool
    tokens_per_s: float


class SystemRow(Measured):
    rollout: Gpus
    training: Gpus
    samples: int
    sync_s: float
    tokens_per_s: float


class MemoryRow(Frozen):
    role: str
    where: str
    model: str
    gpu: str
    gpus: int
    sequence: int
    micro_batch: int
    fits: bool


class Published(Frozen):
    sources: tuple[Source, ...]
    job: Job
    models: tuple[ModelSpec, ...]
    engines: tuple[EngineRow, ...]
    steps: tuple[StepRow, ...]
    ratios: tuple[RatioRow, ...]
    training: tuple[TrainingRow, ...]
    systems: tuple[SystemRow, ...]
    memory: tuple[MemoryRow, ...]


@dataclass(frozen=True)
class Row:
    """A published figure beside the estimate, without and then with its source's scale."""

    kind: str
    source: str
    where: str
    model: str
    published: float
    estimated: float
    is_fitted: bool
    has_scale: bool = True

    @property
    def error(self) -> float:
        return self.estimated / self.published - 1.0


class Estimator:
    def __init__(self, published: Published) -> None:
        self.published = published
        self.gpus = load_gpus()
        self.models = load_models() | {model.name: model for model in published.models}
        self.calibration = load_calibration()

    def rl_job(self, model: str, samples: int) -> Workload:
        job = self.published.job
        return Workload(
            model=self.models[LONG_NAMES[model]],
            prompt_tokens=job.prompt_tokens,
            response_tokens=job.tokens_per_sample - job.prompt_tokens,
            max_response_tokens=job.max_response_tokens,
            samples_per_step=samples,
            eta=job.eta,
        )

    def job_of_engine(self, row: EngineRow) -> Workload:
        model = self.models[row.model]
        return _even_job(model, row.prompt_tokens, row.response_tokens).model_copy(
            update={"model": model.model_copy(update={"bytes_per_param": 1}) if row.fp8 else model}
        )

    def engine_batch(self, row: EngineRow) -> int:
        return largest_batch(self.job_of_engine(row), self.gpus[row.gpu], row.tp)

    def engine_tokens_per_s(self, row: EngineRow) -> float:
        """Output tokens/s per GPU. FP8 halves every byte and doubles the FLOPS."""
        gpu, job = self.gpus[row.gpu], self.job_of_engine(row)
        if row.fp8:
            gpu = gpu.model_copy(update={"bf16_tflops": 2 * gpu.bf16_tflops})
        batch = row.batch or min(MAX_BENCH_BATCH, self.engine_batch(row))
        replica = Replica(gpu, self.calibration.of(row.gpu, job.model), row.tp, batch)
        return rollout.samples_per_s(replica, job) * row.response_tokens / row.tp

    def rollout_samples_per_s(self, job: Workload, gpus: Gpus) -> float:
        """Every GPU type at its best degree, with as many running samples as admission and memory allow."""
        admitted = (job.eta + 1) * job.samples_per_step / sum(gpus.values())
        return sum(count * self._per_gpu(job, self.gpus[gpu], admitted) for gpu, count in gpus.items())

    def _per_gpu(self, job: Workload, gpu: GpuSpec, admitted: float) -> float:
        rates = [0.0]
        for tp in (1, 2, 4, 8):
            batch = min(int(admitted * tp), MAX_BATCH, largest_batch(job, gpu, tp))
            if job.model.heads % tp == 0 and batch > 0:
                replica = Replica(gpu, self.calibration.of(gpu.name, job.model), tp, batch)
                rates.append(rollout.samples_per_s(replica, job) / tp)
        return max(rates)

    def step_s(self, job: Workload, gpus: Gpus, network_gb_per_s: float) -> float:
        ((name, ranks),) = gpus.items()
        share = max(1, job.samples_per_step // ranks)
        micro_batch = largest_micro_batch(job, self.gpus[name], ranks, min(MAX_MICRO_BATCH, share))
        return training.step_s(self.gang(job, name, ranks, network_gb_per_s, max(1, micro_batch)), job)

    def gang(self, job: Workload, gpu: str, ranks: int, network_gb_per_s: float, micro_batch: int) -> Gang:
        nodes, efficiency = max(1, ranks // NODE_GPUS), self.calibration.of(gpu, job.model)
        return Gang(self.gpus[gpu], efficiency, nodes, ranks // nodes, network_gb_per_s, micro_batch)


def _even_job(model: ModelSpec, prompt_tokens: float, response_tokens: float) -> Workload:
    """Samples of one length, as in a benchmark."""
    return Workload(
        model=model,
        prompt_tokens=prompt_tokens,
        response_tokens=response_tokens,
        response_cv=0.0,
        max_response_tokens=math.ceil(response_tokens),
        group_size=1,
        recompute_prox=False,
    )


def _plain_job(model: ModelSpec, row: TrainingRow) -> Workload:
    job = _even_job(model, 1, row.sequence - 1)
    return job.model_copy(update={"samples_per_step": row.samples, "activation_recompute": row.recompute})


def engine_rows(estimator: Estimator) -> Iterator[Row]:
    for row in estimator.published.engines:
        batch = "" if row.batch is None else f" batch {row.batch}"
        where = f"{row.gpu} tp {row.tp}{batch}, {row.prompt_tokens:.0f} + {row.response_tokens:.0f} tokens"
        rate = estimator.engine_tokens_per_s(row)
        yield Row("rollout", row.source, where, row.model, row.tokens_per_s, rate, bool(row.fitted))


def step_rows(estimator: Estimator) -> Iterator[Row]:
    for row in estimator.published.steps:
        job = estimator.rl_job(row.model, STEP_SAMPLES)
        seconds = job.samples_per_step / estimator.rollout_samples_per_s(job, row.rollout)
        yield Row("rollout", row.source, row.where, row.model, row.rollout_s, seconds, "rollout" in row.fitted)
        seconds = estimator.step_s(job, row.training, HEX_NETWORK_GB_PER_S)
        yield Row("training", row.source, row.where, row.model, row.training_s, seconds, "training" in row.fitted)


def ratio_rows(estimator: Estimator) -> Iterator[Row]:
    """Ranges are published: inside there is no error, outside it counts from the nearer end. A ratio needs no scale."""
    model = estimator.models["Llama-3.1-8B"]
    for row in estimator.published.ratios:
        job = _even_job(model, row.prompt_tokens, row.response_tokens)
        slow, fast = (estimator.rollout_samples_per_s(job, gpus) for gpus in (row.slow, row.fast))
        ratio = fast / slow
        nearest = min(max(ratio, row.low), row.high)
        yield Row("rollout", row.source, row.where, model.name, nearest, ratio, bool(row.fitted), has_scale=False)


def training_rows(estimator: Estimator) -> Iterator[Row]:
    for row in estimator.published.training:
        job = _plain_job(estimator.models[row.model], row)
        gang = estimator.gang(job, row.gpu, row.gpus, FAST_NETWORK_GB_PER_S, row.micro_batch)
        rate = training.samples_per_s(gang, job) * row.sequence / row.gpus
        where = f"{row.gpus} {row.gpu}, {row.sequence} tokens"
        yield Row("training", row.source, where, row.model, row.tokens_per_s, rate, bool(row.fitted))


def system_rows(estimator: Estimator, phases: list[Row]) -> Iterator[Row]:
    """A step takes the slower of its phases, each at the scale of its source, and the published weight sync."""
    sources = {source.name: source for source in estimator.published.sources}
    for row in estimator.published.systems:
        beside = [phase for phase in phases if phase.source == sources[row.source].phases]
        scales = {
            kind: scale([phase for phase in beside if phase.kind == kind], row.model)
            for kind in ("rollout", "training")
        }
        job = estimator.rl_job(row.model, row.samples)
        network = HEX_NETWORK_GB_PER_S if beside else FAST_NETWORK_GB_PER_S
        rollout_s = job.samples_per_step / estimator.rollout_samples_per_s(job, row.rollout) * scales["rollout"]
        training_s = estimator.step_s(job, row.training, network) * scales["training"]
        rate = 1.0 / (max(rollout_s, training_s) + row.sync_s)
        yield Row("system", row.source, row.where, row.model, row.tokens_per_s, rate, "system" in row.fitted)


def scale(rows: Iterable[Row], model: str) -> float:
    """The geometric mean of published over estimated of the other models; 1 where there is no other."""
    others = [math.log(row.published / row.estimated) for row in rows if row.model != model]
    return math.exp(statistics.fmean(others)) if others else 1.0


def scaled(rows: list[Row]) -> list[Row]:
    """Every row with the scale that its source's other models give for its kind."""
    found = []
    for row in rows:
        beside = [other for other in rows if (other.kind, other.source) == (row.kind, row.source)]
        factor = scale(beside, row.model) if row.has_scale else 1.0
        found.append(replace(row, estimated=row.estimated * factor))
    return found


def memory_mistakes(estimator: Estimator) -> tuple[list[str], int]:
    """What is refused though it fits or accepted though it runs out, and how many cases there were."""
    published, mistakes = estimator.published, []
    for engine in published.engines:
        if estimator.engine_batch(engine) < 1:
            mistakes.append(f"refused: {engine.model} on {engine.tp} {engine.gpu} ran ({engine.source})")
    for row in published.training:
        job, gpu = _plain_job(estimator.models[row.model], row), estimator.gpus[row.gpu]
        if largest_micro_batch(job, gpu, row.gpus, row.micro_batch) < row.micro_batch:
            mistakes.append(f"refused: {row.model} trained on {row.gpus} {row.gpu} ({row.source})")
    for case in published.memory:
        job, gpu = _even_job(estimator.models[case.model], case.sequence - 1, 1), estimator.gpus[case.gpu]
        if case.role == "training":
            most = largest_micro_batch(job, gpu, case.gpus, case.micro_batch)
        else:
            most = largest_batch(job, gpu, case.gpus)
        if (most >= case.micro_batch) != case.fits:
            said = "refused" if case.fits else "accepted"
            mistakes.append(f"{said}: {case.model}, {case.role} on {case.gpus} {case.gpu} ({case.where})")
    return mistakes, len(published.engines) + len(published.training) + len(published.memory)


def print_rows(rows: list[Row], titles: dict[str, str]) -> None:
    for source in dict.fromkeys(row.source for row in rows):
        own = [row for row in rows if row.source == source]
        medians = ", ".join(
            f"{kind} {median_error(own, kind, with_fitted=True):.0%}" for kind in dict.fromkeys(row.kind for row in own)
        )
        print(f"\n{titles[source]}: median {medians}")
        for row in own:
            mark = " (a factor was read from it)" if row.is_fitted else ""
            figures = f"{row.published:>12,.2f}{row.estimated:>12,.2f}{row.error:>+8.0%}"
            print(f"  {row.kind:<9}{row.model:<13}{row.where:<48}{figures}{mark}")


def median_error(rows: list[Row], kind: str, *, with_fitted: bool = False) -> float:
    return statistics.median(abs(row.error) for row in rows if row.kind == kind and (with_fitted or not row.is_fitted))


def main() -> int:
    """`--smoke` runs the same: the whole table takes a second."""
    published = load_yaml(PUBLISHED, Published)
    estimator = Estimator(published)
    phases = list(step_rows(estimator))
    measured = [*engine_rows(estimator), *phases, *ratio_rows(estimator), *training_rows(estimator)]
    rows = scaled([*measured, *system_rows(estimator, phases)])
    print(f"  {'kind':<9}{'model':<13}{'where':<48}{'published':>12}{'predicted':>12}{'error':>8}")
    print_rows(rows, {source.name: source.title for source in published.sources})
    print(WHY_TRAINING_IS_OFF)
    mistakes, cases = memory_mistakes(estimator)
    print(f"\nmemory: {cases} cases, {len(mistakes)} mistakes", *mistakes, sep="\n  ")
    metrics = {f"{kind}_median": median_error(rows, kind) for kind in KINDS}
    metrics |= {f"{kind}_median_with_fitted": median_error(rows, kind, with_fitted=True) for kind in KINDS}
    metrics |= {f"{kind}_rows": float(sum(row.kind == kind for row in rows)) for kind in KINDS}
    bars = {
        "rollout_median_error": _bar(metrics["rollout_median"], ROLLOUT_BAR),
        "end_to_end_median_error": _bar(metrics["system_median"], SYSTEM_BAR),
        "memory_mistakes": _bar(float(len(mistakes)), 0.0),
    }
    for name, value in metrics.items():
        print(f"{name:<32}{value:>8.3f}")
    print(json.dumps({"benchmark": "estimator_error", "metrics": metrics | {"memory_cases": cases}, "bars": bars}))
    return 0 if all(bar["ok"] for bar in bars.values()) else 1


def _bar(value: float, bar: float) -> dict[str, float | bool]:
    return {"value": value, "bar": bar, "ok": value <= bar}


if __name__ == "__main__":
    sys.exit(main())
