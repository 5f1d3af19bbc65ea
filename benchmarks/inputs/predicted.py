"""What the estimator says of every published row: the same functions that planning calls, on the row's GPUs and job."""

import math
from collections.abc import Iterator

from benchmarks.inputs.published import (
    EngineRow,
    Gpus,
    MemoryRow,
    Published,
    RunRow,
    TrainingRow,
)
from hexcloud.adapters.files import load_calibration, load_gpus, load_models
from hexcloud.domain.formation import Formation
from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.model import ModelSpec
from hexcloud.domain.workload import Workload
from hexcloud.estimate import rollout, training
from hexcloud.estimate.load import Load
from hexcloud.estimate.memory import largest_batch, training_bytes, usable_training_bytes
from hexcloud.estimate.rollout import Replica
from hexcloud.estimate.training import Gang

NODE_GPUS, MAX_MICRO_BATCH = 8, 16
MAX_BATCH, MAX_BENCH_BATCH = 256, 2048
"""Running samples per replica: of RL engines, and of trtllm-bench."""
NETWORK_GB_PER_S = {"areal_hex": 5.0}
FAST_NETWORK_GB_PER_S = 200.0
"""Of one machine. AReaL-Hex prints 5 GB/s; the others have 400 to 3200 Gbit/s."""
LONG_NAMES = {size: f"DeepSeek-R1-Distill-Qwen-{size}" for size in ("1.5B", "7B", "14B")} | {"32B": "Qwen2.5-32B"}
DEGREES = (1, 2, 4, 8)


class Estimator:
    """The catalogs, and the published rows they are asked about."""

    def __init__(self, published: Published) -> None:
        self.published = published
        self.gpus = load_gpus()
        self.models = load_models() | {model.name: model for model in published.models}
        self.calibration = load_calibration()

    def rl_job(self, name: str, model: str, samples: int) -> Workload:
        """Return a source's job with one of its models."""
        job = self.published.jobs[name]
        return Workload(
            model=self.models[LONG_NAMES.get(model, model)],
            prompt_tokens=job.prompt_tokens,
            response_tokens=job.tokens_per_sample[model] - job.prompt_tokens,
            max_response_tokens=job.max_response_tokens,
            samples_per_step=samples,
            eta=job.eta,
            prox_share=1.0,
        )

    def rl_rows(self) -> Iterator[tuple[Workload, RunRow]]:
        """Return the rows of RL runs with their jobs."""
        runs: tuple[RunRow, ...] = (*self.published.steps, *self.published.systems)
        for row in runs:
            yield self.rl_job(row.job, row.model, row.samples), row

    def job_of_engine(self, row: EngineRow) -> Workload:
        """Return the requests of an engine's benchmark. FP8 halves every byte."""
        model = self.models[row.model]
        return even_job(model, row.prompt_tokens, row.response_tokens).model_copy(
            update={"model": model.model_copy(update={"bytes_per_param": 1}) if row.fp8 else model}
        )

    def engine_batch(self, row: EngineRow) -> int:
        """Return how many of an engine's requests fit at once."""
        return largest_batch(self.job_of_engine(row), self.gpus[row.gpu], row.tp)

    def engine_tokens_per_s(self, row: EngineRow) -> float:
        """Return output tokens/s per GPU. FP8 doubles the FLOPS."""
        gpu, job = self.gpus[row.gpu], self.job_of_engine(row)
        if row.fp8:
            gpu = gpu.model_copy(update={"bf16_tflops": 2 * gpu.bf16_tflops})
        batch = min(row.batch or MAX_BENCH_BATCH, self.engine_batch(row))
        replica = Replica(gpu, self.calibration.of(row.gpu, job.model), row.tp, max(1, batch))
        return rollout.samples_per_s(replica, job) * row.response_tokens / row.tp

    def rollout_s(self, job: Workload, gpus: Gpus) -> float:
        """Return seconds of a step's rollout, every GPU type at its best degree; 0 without GPUs."""
        if not gpus:
            return 0.0
        admitted = (job.eta + 1) * job.samples_per_step / sum(gpus.values())
        rate = sum(count * self._per_gpu(job, self.gpus[gpu], admitted) for gpu, count in gpus.items())
        return job.samples_per_step / rate

    def _per_gpu(self, job: Workload, gpu: GpuSpec, admitted: float) -> float:
        """Samples/s of a GPU with as many running samples as admission and memory allow."""
        rates = [0.0]
        for tp in DEGREES:
            batch = min(int(admitted * tp), MAX_BATCH, largest_batch(job, gpu, tp))
            if job.model.heads % tp == 0 and batch > 0:
                replica = Replica(gpu, self.calibration.of(gpu.name, job.model), tp, batch)
                rates.append(rollout.samples_per_s(replica, job) / tp)
        return max(rates)

    def step_s(self, job: Workload, gpus: Gpus, source: str) -> float:
        """Return seconds to train a step on GPUs of one type."""
        ((name, ranks),) = gpus.items()
        micro_batch = max(1, self.most_samples(job, name, ranks))
        gang = self.gang(job, name, ranks, NETWORK_GB_PER_S.get(source, FAST_NETWORK_GB_PER_S))
        return training.loaded_step_s(gang, job, even_load(job, ranks, micro_batch))

    def training_tokens_per_s(self, row: TrainingRow) -> float:
        """Return tokens/s per GPU of plain training."""
        job = plain_job(self.models[row.model], row)
        gang = self.gang(job, row.gpu, row.gpus, FAST_NETWORK_GB_PER_S)
        step_s = training.loaded_step_s(gang, job, even_load(job, row.gpus, row.micro_batch))
        return job.samples_per_step / step_s * row.sequence / row.gpus

    def gang(self, job: Workload, gpu: str, ranks: int, network_gb_per_s: float) -> Gang:
        """Return a gang in machines of eight."""
        nodes, efficiency = max(1, ranks // NODE_GPUS), self.calibration.of(gpu, job.model)
        return Gang(self.gpus[gpu], efficiency, nodes, ranks // nodes, network_gb_per_s)

    def most_samples(self, job: Workload, gpu: str, ranks: int) -> int:
        """Return the micro-batch a trainer would take; 0 when not one sample fits."""
        share = max(1, job.samples_per_step // ranks)
        return largest_micro_batch(job, self.gpus[gpu], ranks, min(MAX_MICRO_BATCH, share))

    def micro_batch(self, row: TrainingRow) -> int:
        """Return the largest micro-batch that fits, at most the published one."""
        return largest_micro_batch(
            plain_job(self.models[row.model], row), self.gpus[row.gpu], row.gpus, row.micro_batch
        )

    def most_at_once(self, job: Workload, case: MemoryRow) -> int:
        """Return how many samples fit in a case of memory, at most as many as are asked of a trainer."""
        if case.role == "training":
            return largest_micro_batch(job, self.gpus[case.gpu], case.gpus, case.micro_batch)
        return largest_batch(job, self.gpus[case.gpu], case.gpus)

    def refused(self, job: Workload, row: RunRow) -> list[str]:
        """Return the GPU types that ran a row in one role and that memory would refuse."""
        found = [gpu for gpu, ranks in row.training.items() if self.most_samples(job, gpu, ranks) < 1]
        for gpu, count in row.rollout.items():
            degrees = (tp for tp in DEGREES if tp <= count and job.model.heads % tp == 0)
            if all(largest_batch(job, self.gpus[gpu], tp) < 1 for tp in degrees):
                found.append(gpu)
        return found


def largest_micro_batch(job: Workload, gpu: GpuSpec, ranks: int, limit: int) -> int:
    """Return the most samples of a pass, one of them the longest, that fit one of `ranks`, at most `limit`."""
    usable, others = usable_training_bytes(gpu), range(limit)
    tokens = [job.longest_tokens + count * job.tokens_per_sample for count in others]
    return sum(training_bytes(job, Formation.flat(ranks), one) <= usable for one in tokens)


def even_load(job: Workload, ranks: int, micro_batch: int) -> Load:
    """Return a step of a published trainer: passes of so many samples, spread evenly, without padding. Updates are not
    printed, and their number does not count where state is sharded over all ranks."""
    samples = math.ceil(job.samples_per_step / ranks)
    return Load(samples * job.tokens_per_sample, math.ceil(samples / micro_batch), 1)


def even_job(model: ModelSpec, prompt_tokens: float, response_tokens: float) -> Workload:
    """Return samples of one length, as in a benchmark."""
    return Workload(
        model=model,
        prompt_tokens=prompt_tokens,
        response_tokens=response_tokens,
        response_cv=0.0,
        max_response_tokens=math.ceil(response_tokens),
        group_size=1,
        prox_share=0.0,
    )


def plain_job(model: ModelSpec, row: TrainingRow) -> Workload:
    """Return a batch of plain training."""
    job = even_job(model, 1, row.sequence - 1)
    return job.model_copy(update={"samples_per_step": row.samples, "activation_recompute": row.recompute})
