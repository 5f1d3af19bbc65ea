"""How many workers does one coordinator serve? 1,000 of them over real HTTP, with samples of 4,096 tokens.

Each worker has a connection and a token of its own: it asks for a lease, delivers the sample with its numbers as
arrays, and begins again; one delivery in fifty is sent twice. A trainer in a process of its own takes the batches and
publishes versions. In turns with that, the same workers send the same bodies to an endpoint of the same server that
sends them back and does nothing else. Bars: at least a quarter of the echo's requests per second (median of the turns'
ratios), and of the samples that the coordinator acknowledged none is lost and none trained twice.

Latencies are told twice: with everybody asking at once, where they are the queue's, and at half that rate.
"""

import argparse
import asyncio
import hashlib
import json
import logging
import multiprocessing
import random
import resource
import sys
import tempfile
import time
from array import array
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median, quantiles

import structlog
import uvicorn
from fastapi import FastAPI, Request, Response

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.fleet import NodeId, RunId
from hexcloud.domain.lease import Lease, LeaseId
from hexcloud.domain.messages import LeaseGrant, LeaseRequest, Pointer, Register, StepReport, Submission
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.raw import RAW, pack_submission
from hexcloud.domain.sample import Sample
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.coordinator_access import AccessList, token_sha256
from hexcloud.runtime.coordinator_app import KEEP_ALIVE_S, serving
from hexcloud.runtime.trainer_link import TrainerLink

RATE_BAR = 0.25
TOKENS, PROMPT, VOCABULARY = 4096, 200, 50_000
TWICE = 50
"""One delivery in so many is repeated."""
GROUP, ETA = 8, 7
Numbers = tuple[tuple[int, ...], tuple[float, ...]]
"""Tokens and logprobs."""
HEAD = NodeId("bench.trainer.0")


@dataclass(frozen=True)
class Settings:
    workers: int
    batch: int
    turns: int
    turn_s: float


class LongPrompts:
    """A task of long responses."""

    max_new_tokens = TOKENS
    vocabulary_size = VOCABULARY

    def prompt(self, seed: int, index: int) -> tuple[tuple[int, ...], str]:
        return tuple((seed + 31 * index + 7 * place) % VOCABULARY for place in range(PROMPT)), "an answer"


def spec(settings: Settings, run_dir: Path) -> NodeSpec:
    return NodeSpec(
        run_id=RunId("bench"), node_id=HEAD, slot=SlotName("trainer"), role=Role.TRAINER, task="", seed=0, slots=0,
        samples_per_step=settings.batch, group_size=GROUP, eta=ETA, steps=10**9, run_dir=str(run_dir),
        output=str(run_dir / "output"), tokens_per_sample=TOKENS, spend_lease_s=3600.0, heartbeat_s=10.0,
    )  # fmt: skip


def worker_id(index: int) -> NodeId:
    return NodeId(f"bench.rollout-{index}.0")


async def echo(request: Request) -> Response:
    return Response(await request.body(), media_type=RAW)


def head(settings: Settings, run_dir: Path, pipe: Connection) -> None:
    """Serve coordinator and echo from one loop; tell where, and at the end what the coordinator still holds."""

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))

    async def life() -> None:
        access = AccessList("controller", {HEAD: token_sha256(HEAD)})
        for node_id in map(worker_id, range(settings.workers)):
            access.admit(node_id, token_sha256(str(node_id)))
        coordinator = Coordinator(spec(settings, run_dir), LongPrompts(), access)
        app = FastAPI(openapi_url=None)
        app.add_route("/leases", echo, methods=["POST"])
        app.add_route("/samples", echo, methods=["POST"])
        config = uvicorn.Config(
            app, port=0, log_config=None, access_log=False, lifespan="off", timeout_keep_alive=KEEP_ALIVE_S
        )
        plain = uvicorn.Server(config)
        told: list[Pointer] = []
        async with serving(coordinator, "secret", tell=told.append):
            echoing = asyncio.create_task(plain.serve())
            while not plain.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)
            port = plain.servers[0].sockets[0].getsockname()[1]
            pipe.send((told[0].url, f"http://127.0.0.1:{port}"))
            while await asyncio.to_thread(pipe.recv) != "end":
                pipe.send(time.process_time())
            groups = coordinator._admission._groups
            held = sum(len(group.samples) for group in groups.live.values())
            held += sum(len(group.samples) for group in groups.training)
            pipe.send((held, coordinator._admission.dropped_samples))
            plain.should_exit = True
            await echoing

    asyncio.run(life())


def trainer(settings: Settings, run_dir: Path, url: str, pipe: Connection) -> None:
    """Take every batch and publish its version at once; at the end tell which samples were trained how often."""
    weights = run_dir / "weights"
    weights.write_bytes(b"weights")
    link, trained, version = TrainerLink(url, HEAD), Counter[str](), 0
    digest = hashlib.sha256(b"weights").hexdigest()
    while True:
        link.publish(StepReport(epoch=0, version=version, path=str(weights), sha256=digest, size=7))
        while not (batch := link.batch()).groups:
            if pipe.poll():
                pipe.send(trained)
                link.close()
                return
        trained.update(sample.lease for group in batch.groups for sample in group.samples)
        version += 1


class Line:
    """One connection of one node."""

    def __init__(self, token: str) -> None:
        self._fixed = f"Host: localhost\r\nAuthorization: Bearer {token}\r\n"
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port), limit=1 << 20)

    async def post(self, path: str, body: bytes, kind: str = "application/json") -> bytes:
        told = f"POST {path} HTTP/1.1\r\n{self._fixed}Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._writer.write(told.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 20"):
            raise RuntimeError(f"{path}: {answer[:60]!r}")
        _, found, rest = answer.lower().partition(b"content-length: ")
        return await self._reader.readexactly(int(rest.partition(b"\r\n")[0])) if found else b""


@dataclass
class Figures:
    """What workers saw."""

    requests: int = 0
    head_s: float = 0.0
    """Of the processor, by the head's process."""
    leases: int = 0
    lease_s: list[float] = field(default_factory=list)
    sample_s: list[float] = field(default_factory=list)


class Worker:
    """Asks, delivers, and begins again."""

    def __init__(self, index: int, numbers: Numbers) -> None:
        self.id = worker_id(index)
        self.line, self.echo = Line(self.id), Line(self.id)
        self.delivered: list[str] = []
        self._numbers = numbers
        self._version = -1
        self._lease: Lease | None = None

    async def join(self, url: str, echo_url: str) -> None:
        await self.line.open(url)
        await self.echo.open(echo_url)
        register = Register(node_id=self.id, role=Role.ROLLOUT, slots=1, address="127.0.0.1:1")
        await self.line.post("/register", register.model_dump_json().encode())

    async def repeat(self, until_s: float, figures: Figures) -> None:
        """Send to the echo what a lease's life takes, made anew each time as for the coordinator."""
        assert self._lease is not None
        granted = LeaseGrant(leases=(self._lease,)).model_dump_json().encode()
        while time.perf_counter() < until_s:
            await self.echo.post("/leases", self._ask())
            lease = LeaseGrant.model_validate_json(granted).leases[0]
            await self.echo.post("/samples", self._packed(lease), RAW)
            figures.requests += 2

    async def work(self, until_s: float, figures: Figures, pause_s: float = 0.0) -> None:
        """Live through leases until then; pause about so long before each."""
        while time.perf_counter() < until_s:
            if pause_s:
                await asyncio.sleep(random.uniform(0, 2 * pause_s))
            begun_s = time.perf_counter()
            grant = LeaseGrant.model_validate_json(await self.line.post("/leases", self._ask()))
            asked_s = time.perf_counter()
            if grant.load is not None:
                self._version = grant.load.version
            if not grant.leases:
                await asyncio.sleep(0.0 if grant.load else grant.retry_s)
                continue
            await self._deliver(grant.leases[0])
            figures.requests += 2
            figures.leases += 1
            figures.lease_s.append(asked_s - begun_s)
            figures.sample_s.append(time.perf_counter() - asked_s)

    def _ask(self) -> bytes:
        return LeaseRequest(node_id=self.id, epoch=0, version=self._version, want=1).model_dump_json().encode()

    @property
    def is_ready(self) -> bool:
        return self._lease is not None

    async def _deliver(self, lease: Lease) -> None:
        self._lease, body = lease, self._packed(lease)
        await self.line.post("/samples", body, RAW)
        if len(self.delivered) % TWICE == 0:
            await self.line.post("/samples", body, RAW)
        self.delivered.append(lease.id)

    def _packed(self, lease: Lease) -> bytes:
        tokens, logprobs = self._numbers
        sample = Sample.model_construct(
            lease=lease.id,
            attempt=lease.attempt,
            group=lease.group,
            index=lease.index,
            epoch=lease.epoch,
            prompt_ids=lease.prompt_ids,
            reward=float(lease.index % 2),
            tokens=tokens,
            logprobs=logprobs,
            versions=(lease.version,) * TOKENS,
        )
        return pack_submission(Submission.model_construct(node_id=self.id, samples=(sample,)))


@dataclass
class Found:
    """What the turns showed."""

    ratios: list[float] = field(default_factory=list)
    """Requests per second over the echo's."""
    head_ratios: list[float] = field(default_factory=list)
    """The same per second of the head's processor, which nothing else on the machine takes part in."""
    figures: list[Figures] = field(default_factory=list)
    half: Figures = field(default_factory=Figures)
    """At half the rate."""
    delivered: set[LeaseId] = field(default_factory=set)
    """Samples that were acknowledged."""


async def fleet(settings: Settings, url: str, echo_url: str, pipe: Connection) -> Found:
    """Let the workers live through all turns."""
    rng = random.Random(0)
    tokens = tuple(rng.randrange(VOCABULARY) for _ in range(TOKENS))
    numbers = tokens, tuple(array("f", [-rng.random() for _ in range(TOKENS)]))
    workers = [Worker(index, numbers) for index in range(settings.workers)]
    for worker in workers:
        await worker.join(url, echo_url)
    while not all(worker.is_ready for worker in workers):  # the first version comes when the trainer has started
        await turn(workers, "work", 1.0, pipe)
    found = Found()
    for _ in range(settings.turns):
        repeated = await turn(workers, "repeat", settings.turn_s / 2, pipe)
        worked = await turn(workers, "work", settings.turn_s, pipe)
        found.figures.append(worked)
        found.ratios.append(worked.requests / settings.turn_s / (repeated.requests / (settings.turn_s / 2)))
        found.head_ratios.append(worked.requests / worked.head_s / (repeated.requests / repeated.head_s))
    rate = median(one.leases for one in found.figures) / settings.turn_s
    await asyncio.sleep(settings.turn_s)  # the trainer takes what has piled up, or nothing may start
    found.half = await turn(workers, "half", settings.turn_s, pipe, settings.workers / (rate / 2))
    delivered = [lease for worker in workers for lease in worker.delivered]
    if len(delivered) != len(set(delivered)):
        raise RuntimeError("a sample was leased again although it was delivered")
    found.delivered = {LeaseId(one) for one in delivered}
    return found


async def turn(workers: list[Worker], what: str, seconds: float, pipe: Connection, pause_s: float = 0.0) -> Figures:
    """Let all workers do one thing for so long; what is under way then still ends."""
    begun_s = head_seconds(pipe)
    figures, until_s = Figures(), time.perf_counter() + seconds
    if what == "repeat":
        await asyncio.gather(*(worker.repeat(until_s, figures) for worker in workers))
    else:
        await asyncio.gather(*(worker.work(until_s, figures, pause_s) for worker in workers))
    figures.head_s = head_seconds(pipe) - begun_s
    return figures


def head_seconds(pipe: Connection) -> float:
    pipe.send("cpu")
    return float(pipe.recv())


def measured(settings: Settings, run_dir: Path) -> tuple[Found, int, int]:
    """Run everything; return what was found, and how many samples were lost and doubled."""
    context = multiprocessing.get_context("spawn")
    head_pipe, theirs = context.Pipe()
    server = context.Process(target=head, args=(settings, run_dir, theirs), daemon=True)
    server.start()
    url, echo_url = head_pipe.recv()
    trainer_pipe, theirs = context.Pipe()
    training = context.Process(target=trainer, args=(settings, run_dir, url, theirs), daemon=True)
    training.start()
    found = asyncio.run(fleet(settings, url, echo_url, head_pipe))
    delivered = found.delivered
    trainer_pipe.send("end")
    trained = trainer_pipe.recv()
    head_pipe.send("end")
    held, dropped = head_pipe.recv()
    for process in (training, server):
        process.join(20)
    strangers = len(set(trained) - delivered)
    lost = len(delivered) - len(trained) - held - dropped
    print(f"{len(delivered)} delivered: {len(trained)} trained, {held} wait for a batch, {dropped} too old")
    return found, abs(lost) + strangers, sum(trained.values()) - len(trained)


def print_table(label: str, seconds: float, figures: Figures) -> dict[str, float]:
    """Print one line of the table; return its figures."""
    lease, sample = (quantiles(some, n=100) for some in (figures.lease_s, figures.sample_s))
    told = {
        "leases_per_s": figures.leases / seconds,
        "lease_p50_ms": lease[49] * 1e3,
        "lease_p99_ms": lease[98] * 1e3,
        "sample_p50_ms": sample[49] * 1e3,
        "sample_p99_ms": sample[98] * 1e3,
    }
    print(f"{label:<16}" + "".join(f"{value:>16.1f}" for value in told.values()))
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="fewer workers and shorter turns")
    settings = Settings(100, 64, 7, 1.0) if parser.parse_args().smoke else Settings(1000, 512, 7, 6.0)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 16_384), most))
    with tempfile.TemporaryDirectory(prefix="coordinator-") as name:
        found, lost, doubled = measured(settings, Path(name))
    names = ("leases/s", "lease p50 ms", "lease p99 ms", "sample p50 ms", "sample p99 ms")
    print(
        f"\n{settings.workers} workers, samples of {TOKENS} tokens\n{'':<16}" + "".join(f"{one:>16}" for one in names)
    )
    best = max(found.figures, key=lambda one: one.leases)
    metrics = {
        "all_at_once": print_table("all at once", settings.turn_s, best),
        "at_half_the_rate": print_table("at half the rate", settings.turn_s, found.half),
    }
    ratio = median(found.ratios)
    for label, ratios in (("requests/s", found.ratios), ("per second of the head's processor", found.head_ratios)):
        print(f"over the echo, {label}: {', '.join(f'{one:.3f}' for one in ratios)}")
    print(f"lost {lost}, doubled {doubled}")
    metrics["over_echo"] = {"wall": ratio, "head_processor": median(found.head_ratios)}
    bars: dict[str, dict[str, float | bool]] = {
        "requests_over_echo": {"value": ratio, "bar": RATE_BAR, "ok": ratio >= RATE_BAR},
        "lost_samples": {"value": lost, "bar": 0, "ok": lost == 0},
        "doubled_samples": {"value": doubled, "bar": 0, "ok": doubled == 0},
    }
    print(json.dumps({"benchmark": "coordinator", "metrics": metrics, "bars": bars}))
    return 0 if all(one["ok"] for one in bars.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
