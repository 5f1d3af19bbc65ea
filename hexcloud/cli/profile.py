"""`hexcloud profile`: measure an engine or a trainer; from then on plans believe the measurement."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hexcloud.cli.options import AsJson
from hexcloud.cli.output import print_json

if TYPE_CHECKING:
    from hexcloud.adapters.engines.client import EngineClient
    from hexcloud.domain.calibration import Factor, Phase
    from hexcloud.domain.formation import Formation
    from hexcloud.domain.metrics import StepRow
    from hexcloud.domain.model import ModelSpec

_NOT_UNDERSTOOD = (KeyError, TypeError, ValueError)
"""What reading the answer of something else than an engine raises."""
WARM_UP_STEPS = 2
"""A trainer's first steps compile and allocate."""


@dataclass(frozen=True)
class Subject:
    """What is measured, as the user names it."""

    source: str
    gpu: str
    model: "ModelSpec"


@dataclass(frozen=True)
class Finding:
    """One measurement beside its estimate; speeds, so that more is better."""

    what: str
    unit: str
    measured: float
    estimated: float

    @property
    def speed(self) -> float:
        """Measured over estimated."""
        return self.measured / self.estimated


def profile(
    source: Annotated[str, typer.Argument(help="URL of an engine (SGLang's HTTP API), or a trainer's metrics.jsonl.")],
    gpu: Annotated[str, typer.Option("--gpu", help="What it runs on: a GPU of the catalog.")],
    model: Annotated[str, typer.Option("--model", help="The model it runs: a model of the catalog.")],
    tp: Annotated[int, typer.Option("--tp", min=1, help="Engine: tensor-parallel degree.")] = 1,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Engine: requests that fill it.")] = 64,
    prompt_tokens: Annotated[int, typer.Option("--prompt-tokens", min=1, help="Engine: tokens of a prompt.")] = 512,
    response_tokens: Annotated[int, typer.Option("--response-tokens", min=1, help="Engine: of a response.")] = 256,
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Trainer: machines of its gang.")] = 1,
    gpus_per_node: Annotated[int, typer.Option("--gpus-per-node", min=1, help="Trainer: GPUs of a machine.")] = 8,
    layout: Annotated[str, typer.Option("--layout", help="Trainer: fsdp, hsdp or tp, as it ran.")] = "fsdp",
    network_gb_per_s: Annotated[
        float, typer.Option("--network-gb-per-s", min=0.001, help="Trainer: network of a machine, one way.")
    ] = 50.0,
    file: Annotated[
        Path | None, typer.Option("--file", help="Where to write.", show_default="HEXCLOUD_HOME/calibration.yaml")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure an engine or a trainer and write its speed, as a share of the estimate, where plans read it."""
    from hexcloud.domain.calibration import Phase

    subject = _subject(source, gpu, model)
    if source.startswith(("http://", "https://")):
        phase, findings = Phase.ROLLOUT, _engine(subject, (tp, batch), (prompt_tokens, response_tokens))
    else:
        phase, findings = Phase.TRAINING, _trainer(subject, _formation(layout, nodes, gpus_per_node), network_gb_per_s)
    _report(findings, _written(subject, phase, findings[-1], file), as_json)


def _subject(source: str, gpu: str, model: str) -> Subject:
    from hexcloud.adapters.files import find_model, load_gpus, suggest
    from hexcloud.domain.errors import ConfigError

    known = {name.lower(): name for name in load_gpus()}
    if gpu.lower() not in known:
        raise ConfigError(f"--gpu {gpu!r} is unknown{suggest(gpu, known.values())}")
    return Subject(source, known[gpu.lower()], find_model(model))


def _engine(subject: Subject, degree_and_batch: tuple[int, int], tokens: tuple[int, int]) -> list[Finding]:
    """Measure from one request to a full engine. The full one counts: that is how a run keeps it."""
    from hexcloud.adapters.engines.client import EngineClient
    from hexcloud.adapters.engines.model_folder import ModelFacts
    from hexcloud.adapters.engines.profile import Load, tokens_per_s
    from hexcloud.adapters.files import load_calibration, load_gpus
    from hexcloud.estimate.profile import EngineLoad, engine_tokens_per_s
    from hexcloud.estimate.rollout import Replica

    tp, full = degree_and_batch
    gpu, efficiency = load_gpus()[subject.gpu], load_calibration().without_factors().of(subject.gpu)
    client = EngineClient(subject.source.rstrip("/"), ModelFacts(subject.model.vocab))
    findings = []
    try:
        _greet(client, subject.source)
        for batch in sorted({1, max(1, full // 4), full}):
            measured = tokens_per_s(client, Load(batch, *tokens, vocab=subject.model.vocab))
            estimated = engine_tokens_per_s(Replica(gpu, efficiency, tp, batch), EngineLoad(*tokens), subject.model)
            findings.append(Finding(f"{batch} at once", "tok/s", measured, estimated))
    finally:
        client.close()
    return findings


def _greet(client: "EngineClient", url: str) -> None:
    """Make sure that an engine answers before it is loaded. Raises EngineError, or ConfigError when it is none."""
    from hexcloud.domain.errors import ConfigError, EngineError

    strange: Exception
    try:
        client.info()
        return
    except EngineError as error:
        if not isinstance(error.__cause__, _NOT_UNDERSTOOD):
            raise EngineError(f"no engine answers at {url}: is it up, and is this its address? ({error})") from error
        strange = error
    except _NOT_UNDERSTOOD as error:
        strange = error
    raise ConfigError(
        f"{url} answers, but not as an engine does: give the address of SGLang's HTTP API, where GET /model_info names "
        "the model"
    ) from strange


def _formation(layout: str, nodes: int, gpus_per_node: int) -> "Formation":
    from hexcloud.domain.errors import ConfigError
    from hexcloud.domain.formation import Formation
    from hexcloud.domain.training import LayoutKind

    if layout not in set(LayoutKind):
        raise ConfigError(f"--layout {layout!r} is unknown: say {', '.join(LayoutKind)}")
    return Formation(LayoutKind(layout), nodes, gpus_per_node)


def _trainer(subject: Subject, formation: "Formation", network_gb_per_s: float) -> list[Finding]:
    """Take the median step of the file, its own samples and lengths, in the fastest passes that fit."""
    import statistics

    from hexcloud.adapters.files import load_calibration, load_gpus
    from hexcloud.domain.errors import ConfigError
    from hexcloud.domain.workload import Workload
    from hexcloud.estimate.memory import pass_sizes
    from hexcloud.estimate.training import Gang, step_s

    steps = [step for step in _steps(subject.source) if step.samples > 0 and step.tokens > 0 and step.busy_s > 0]
    if len(steps) <= WARM_UP_STEPS:
        raise ConfigError(
            f"{subject.source}: {len(steps)} steps are too few; more than {WARM_UP_STEPS} are needed: let the run go on"
        )
    steps = steps[WARM_UP_STEPS:]
    samples = round(statistics.fmean(step.samples for step in steps))
    tokens = statistics.fmean(step.tokens / step.samples for step in steps)
    job = Workload(
        model=subject.model,
        prompt_tokens=tokens / 4,  # only the sum counts here
        response_tokens=tokens * 3 / 4,
        max_response_tokens=max(1, round(tokens * 4)),
        samples_per_step=samples,
        group_size=1,
    )
    gpu = load_gpus()[subject.gpu]
    sizes = pass_sizes(job, gpu, formation)
    if not sizes:
        machines = f"{formation.size} x {subject.gpu}"
        raise ConfigError(f"{subject.model.name} does not fit {machines}: not one sample of a step")
    efficiency = load_calibration().without_factors().of(subject.gpu)
    size = (formation.machines, formation.ranks)
    gangs = (Gang(gpu, efficiency, *size, network_gb_per_s, tokens, formation.kind) for tokens in sizes)
    estimated_s = min(step_s(gang, job) for gang in gangs)
    measured_s = statistics.median(step.busy_s for step in steps)
    return [Finding(f"{len(steps)} steps", "samples/s", samples / measured_s, samples / estimated_s)]


def _steps(source: str) -> "tuple[StepRow, ...]":
    """Read a trainer's steps. Raises ConfigError for what is no such file, with its mend."""
    from pydantic import ValidationError

    from hexcloud.adapters.metrics import read_steps
    from hexcloud.domain.errors import ConfigError, StoreError

    path = Path(source)
    if not path.exists():
        address = f" (an engine's address starts with http://: http://{source})" if ":" in source else ""
        raise ConfigError(f"{source}: no such file; give a run's metrics.jsonl, or the URL of an engine{address}")
    if path.is_dir():
        raise ConfigError(f"{source} is a folder; give the metrics.jsonl of a run")
    try:
        return read_steps(path)
    except StoreError as error:
        cause = error.__cause__
        first = cause.errors()[0] if isinstance(cause, ValidationError) else None
        flaw = str(cause) if first is None else ": ".join([*map(str, first["loc"]), first["msg"]])
        raise ConfigError(f"{source} is no metrics.jsonl of a run: a line is no step ({flaw})") from error


def _written(subject: Subject, phase: "Phase", finding: Finding, file: Path | None) -> tuple["Factor", Path]:
    import time

    from hexcloud import wiring
    from hexcloud.adapters.files import save_factor
    from hexcloud.domain.errors import ConfigError
    from hexcloud.estimate.profile import factor

    day = time.strftime("%Y-%m-%d", time.gmtime())
    found = factor(subject.gpu, phase, subject.model, finding.speed, f"hexcloud profile, {subject.model.name}, {day}")
    if found is None:
        raise ConfigError(
            f"measured {finding.measured:.3g} {finding.unit} where {finding.estimated:.3g} are expected: is this "
            f"{subject.model.name} on {subject.gpu}? nothing was written"
        )
    path = file or wiring.factors_file()
    save_factor(path, found)
    return found, path


def _report(findings: list[Finding], written: tuple["Factor", Path], as_json: bool) -> None:
    found, path = written
    if as_json:
        rows = [{**vars(finding), "speed": finding.speed} for finding in findings]
        print_json({"findings": rows, "factor": found.model_dump(mode="json"), "file": str(path)})
        return
    for one in findings:
        measured = f"{one.measured:,.1f} {one.unit}"
        typer.echo(f"{one.what:<14}{measured:>22}  estimated {one.estimated:,.1f}  ({one.speed:.0%})")
    what = f"{found.gpu}, {found.phase.value}, {found.model_class.value} models"
    typer.echo(f"{what}: {found.speed:.0%} of the estimate, written to {path}")
