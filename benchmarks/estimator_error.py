"""How wrong is the estimator? It predicts what others measured and published, and what is known to fit or run out.

A source is one publication (benchmarks/published.yaml). Each gets one free scale (it has another engine, another
trainer, lengths it does not print), fitted on its other models only; AReaL-Hex, which measures its phases apart, gets
one for rollout and one for training, and none of its own for the whole system. Ratios, and sources of one model, get
none. What is left is how speed changes with model, GPU, batch, length and number of GPUs.

Bars: half of the rollout rows within 15 % and half of the end-to-end rows within 25 %, and so the median source, so
that no source carries the rest; no mistake about memory. Rows from which a factor was read do not count. Training rows
have no bar: published trainers differ by more on equal GPUs.
"""

import json
import math
import statistics
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.inputs.picture import Strips, draw_strips, png_asked
from benchmarks.inputs.predicted import Estimator, even_job
from benchmarks.inputs.published import Kind, Published, published

ROLLOUT_BAR, SYSTEM_BAR = 0.15, 0.25
BARS: dict[Kind, float] = {"rollout": ROLLOUT_BAR, "system": SYSTEM_BAR}
KINDS: tuple[Kind, ...] = ("rollout", "training", "system")
WHY_IT_IS_OFF = """
Why it is off where it is. (1) AReaL-Hex contradicts itself about H20: in figure 2, 88 of them (162.80 USD/h) are as
fast as 32 H800, in figures 3 and 4, 68 of them (126.72 USD/h) make half of what 24 H800 make, in both phases alike; no
formula in the number of GPUs fits both. The catalog believes the slower, so the H20 rows of figure 2 come out up to
2.4x too slow to train. Its rollout slows with the number of GPUs (24 H20 make two thirds of table 1's rate, 45 half),
which a lack of running samples would explain, but it prints neither batch nor staleness bound. (2) Its 7B trains 1.9x
slower than its 1.5B, where FLOPs say 3.5x, and its 14B 3.2x slower than its 7B, where FLOPs say 2.1x. (3) Its 24 H800 +
24 H20 of figure 2 are up to twice as fast as its own homogeneous rows add up to. (4) TensorRT-LLM of 2023 reads a
grouped-query cache (70B, 180B) slowly in FP8, and one scale has to serve all of its models. (5) Published trainers
recompute activations at half the price of a forward pass (30B, 34B, 70B), as that makes room for larger micro-batches;
plans keep the slack."""


@dataclass(frozen=True)
class Row:
    """A published figure beside the estimate, without and then with its source's scale."""

    kind: Kind
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


def engine_rows(estimator: Estimator) -> Iterator[Row]:
    for row in estimator.published.engines:
        batch = "" if row.batch is None else f" batch {row.batch}"
        where = f"{row.gpu} tp {row.tp}{batch}, {row.prompt_tokens:.0f} + {row.response_tokens:.0f} tokens"
        rate = estimator.engine_tokens_per_s(row)
        yield Row("rollout", row.source, where, row.model, row.tokens_per_s, rate, bool(row.fitted))


def step_rows(estimator: Estimator) -> Iterator[Row]:
    for row in estimator.published.steps:
        job = estimator.rl_job(row.job, row.model, row.samples)
        seconds = estimator.rollout_s(job, row.rollout)
        yield Row("rollout", row.source, row.where, row.model, row.rollout_s, seconds, "rollout" in row.fitted)
        seconds = estimator.step_s(job, row.training, row.source)
        yield Row("training", row.source, row.where, row.model, row.training_s, seconds, "training" in row.fitted)


def ratio_rows(estimator: Estimator) -> Iterator[Row]:
    """Ranges are published: inside there is no error, outside it counts from the nearer end. A ratio needs no scale."""
    model = estimator.models["Llama-3.1-8B"]
    for row in estimator.published.ratios:
        job = even_job(model, row.prompt_tokens, row.response_tokens)
        ratio = estimator.rollout_s(job, row.slow) / estimator.rollout_s(job, row.fast)
        nearest = min(max(ratio, row.low), row.high)
        yield Row("rollout", row.source, row.where, model.name, nearest, ratio, bool(row.fitted), has_scale=False)


def scaling_rows(estimator: Estimator) -> Iterator[Row]:
    for row in estimator.published.scaling:
        job = estimator.rl_job(row.job, row.model, row.samples)
        few, many = (
            max(estimator.rollout_s(job, gpus.get("rollout", {})), estimator.step_s(job, gpus["training"], row.source))
            for gpus in (row.few, row.many)
        )
        yield Row(row.kind, row.source, row.where, row.model, row.ratio, few / many, bool(row.fitted), has_scale=False)


def training_rows(estimator: Estimator) -> Iterator[Row]:
    for row in estimator.published.training:
        rate = estimator.training_tokens_per_s(row)
        where = f"{row.gpus} {row.gpu}, {row.sequence} tokens"
        yield Row("training", row.source, where, row.model, row.tokens_per_s, rate, bool(row.fitted))


def system_rows(estimator: Estimator, phases: list[Row]) -> Iterator[Row]:
    """A step takes the slower of its phases and the published weight sync."""
    for row in estimator.published.systems:
        job = estimator.rl_job(row.job, row.model, row.samples)
        beside = [phase for phase in phases if phase.source == row.source]
        scales = {kind: scale([one for one in beside if one.kind == kind], row.model) for kind in KINDS}
        rollout_s = estimator.rollout_s(job, row.rollout) * scales["rollout"]
        training_s = estimator.step_s(job, row.training, row.source) * scales["training"]
        step_s = max(rollout_s, training_s) + row.sync_s
        tokens = row.samples * job.tokens_per_sample
        known = row.tokens_per_s if row.step_s is None else tokens / row.step_s
        assert known is not None  # the row's validator
        rate, fitted = tokens / step_s, bool(row.fitted)
        yield Row("system", row.source, row.where, row.model, known, rate, fitted, has_scale=not beside)


def scale(rows: Iterable[Row], model: str) -> float:
    """The geometric mean of published over estimated of the other models; 1 where there is no other."""
    others = [math.log(row.published / row.estimated) for row in rows if row.model != model]
    return math.exp(statistics.fmean(others)) if others else 1.0


def scaled(rows: list[Row]) -> list[Row]:
    """Every row with the scale that its source's other models give for its kind."""
    found = []
    for row in rows:
        beside = [other for other in rows if (other.kind, other.source) == (row.kind, row.source) and other.has_scale]
        factor = scale(beside, row.model) if row.has_scale else 1.0
        found.append(replace(row, estimated=row.estimated * factor))
    return found


def memory_mistakes(estimator: Estimator) -> tuple[list[str], int]:
    """What is refused though it fits or accepted though it runs out, and how many cases there were."""
    cases = [*_that_ran(estimator), *_that_were_tried(estimator)]
    return [what for what, is_right in cases if not is_right], len(cases)


def _that_ran(estimator: Estimator) -> Iterator[tuple[str, bool]]:
    """Every published row ran, so it fits."""
    for engine in estimator.published.engines:
        what = f"refused: {engine.model} on {engine.tp} {engine.gpu} ran ({engine.source})"
        yield what, estimator.engine_batch(engine) >= 1
    for plain in estimator.published.training:
        what = f"refused: {plain.model}, {plain.micro_batch} x {plain.sequence} tokens ran ({plain.source})"
        yield what, estimator.micro_batch(plain) == plain.micro_batch
    for job, row in estimator.rl_rows():
        refused = estimator.refused(job, row)
        for gpu in (*row.rollout, *row.training):
            yield f"refused: {row.model} on {gpu} ran ({row.source})", gpu not in refused


def _that_were_tried(estimator: Estimator) -> Iterator[tuple[str, bool]]:
    for case in estimator.published.memory:
        job = even_job(estimator.models[case.model], case.sequence - 1, 1)
        said = "refused" if case.fits else "accepted"
        what = f"{said}: {case.model}, {case.role} on {case.gpus} {case.gpu} ({case.where})"
        yield what, (estimator.most_at_once(job, case) >= case.micro_batch) == case.fits


def print_rows(rows: list[Row], known: Published) -> None:
    print(f"  {'kind':<9}{'model':<13}{'where':<48}{'published':>12}{'predicted':>12}{'error':>8}")
    for source in known.sources:
        own = [row for row in rows if row.source == source.name]
        print(f"\n{source.title}")
        for row in own:
            mark = " (a factor was read from it)" if row.is_fitted else ""
            figures = f"{row.published:>12,.2f}{row.estimated:>12,.2f}{row.error:>+8.0%}"
            print(f"  {row.kind:<9}{row.model:<13}{row.where:<48}{figures}{mark}")


def median_error(rows: Iterable[Row], kind: Kind, *, with_fitted: bool = False) -> float | None:
    """Return the median of the rows of a kind that count; None where there is none."""
    errors = [abs(row.error) for row in rows if row.kind == kind and (with_fitted or not row.is_fitted)]
    return statistics.median(errors) if errors else None


def source_medians(rows: list[Row], kind: Kind) -> dict[str, float]:
    """Return the median error of each source that has rows of a kind."""
    names = sorted({row.source for row in rows})
    found = ((name, median_error((row for row in rows if row.source == name), kind)) for name in names)
    return {name: median for name, median in found if median is not None}


def print_sources(rows: list[Row]) -> None:
    print("\nmedian error of each source, rows that count")
    print(f"  {'source':<18}" + "".join(f"{kind:>18}" for kind in KINDS))
    for name in dict.fromkeys(row.source for row in rows):
        cells = []
        for kind in KINDS:
            own = [row for row in rows if row.source == name and row.kind == kind and not row.is_fitted]
            found = median_error(own, kind)
            cells.append("" if found is None else f"{found:.1%} of {len(own)}")
        print(f"  {name:<18}" + "".join(f"{cell:>18}" for cell in cells))


def judged(rows: list[Row], kind: Kind) -> dict[str, float]:
    """Return what the bars are about, and what they would be with the rows from which factors were read."""
    median, all_rows = median_error(rows, kind), median_error(rows, kind, with_fitted=True)
    assert median is not None and all_rows is not None
    sources = source_medians(rows, kind)
    return {
        f"{kind}_median": median,
        f"{kind}_median_of_sources": statistics.median(sources.values()),
        f"{kind}_median_with_fitted": all_rows,
        f"{kind}_rows": float(sum(row.kind == kind for row in rows)),
        f"{kind}_sources": float(len(sources)),
    }


def main() -> int:
    """`--smoke` runs the same: the whole table takes a second. `--png FILE` draws the errors of each source."""
    estimator = Estimator(published())
    phases = list(step_rows(estimator))
    measured = [*engine_rows(estimator), *phases, *ratio_rows(estimator), *scaling_rows(estimator)]
    rows = scaled([*measured, *training_rows(estimator), *system_rows(estimator, phases)])
    one_scale = scaled([*scaling_rows(estimator), *system_rows(estimator, [])])
    print_rows(rows, estimator.published)
    print(WHY_IT_IS_OFF)
    print_sources(rows)
    mistakes, cases = memory_mistakes(estimator)
    ran_out = sum(not case.fits for case in estimator.published.memory)
    summary = f"{cases} cases, {ran_out} of them known to run out, {len(mistakes)} mistakes"
    print(f"\nmemory: {summary}", *mistakes, sep="\n  ")
    metrics = {name: value for kind in KINDS for name, value in judged(rows, kind).items()}
    metrics["system_median_if_areal_hex_had_one_scale"] = median_error(one_scale, "system") or 0.0
    bars = {"memory_mistakes": _bar(float(len(mistakes)), 0.0)}
    for kind, most in BARS.items():
        bars[f"{kind}_median_error"] = _bar(metrics[f"{kind}_median"], most)
        bars[f"{kind}_median_error_of_sources"] = _bar(metrics[f"{kind}_median_of_sources"], most)
    strict = metrics["system_median_if_areal_hex_had_one_scale"]
    bars["system_median_error_if_areal_hex_had_one_scale"] = _bar(strict, SYSTEM_BAR)
    for name, value in metrics.items():
        print(f"{name:<42}{value:>8.3f}")
    if (path := png_asked()) is not None:
        draw(rows, path)
    counted = {"memory_cases": float(cases), "memory_cases_that_run_out": float(ran_out)}
    print(json.dumps({"benchmark": "estimator_error", "metrics": metrics | counted, "bars": bars}))
    return 0 if all(bar["ok"] for bar in bars.values()) else 1


def draw(rows: list[Row], path: Path) -> None:
    """Draw the errors of the rows that count, by source and kind."""
    counted = [row for row in rows if not row.is_fitted]
    keys = dict.fromkeys((row.kind, row.source) for row in sorted(counted, key=lambda row: KINDS.index(row.kind)))
    values = {
        f"{source} {kind}": [row.error for row in counted if (row.kind, row.source) == (kind, source)]
        for kind, source in keys
    }
    draw_strips(Strips("Predicted over published, less one", "error", values, (-0.15, 0.0, 0.15)), path)


def _bar(value: float, bar: float) -> dict[str, float | bool]:
    return {"value": value, "bar": bar, "ok": value <= bar}


if __name__ == "__main__":
    sys.exit(main())
