"""How many workers does one coordinator serve? 1,000 of them over real HTTP, with samples of 4,096 tokens.

Each worker has a connection and a token of its own: it asks for a lease, commits its response after 1,024, 2,048 and
3,072 tokens, delivers the sample, and begins again; one delivery in fifty is sent twice. Beside that it sends
heartbeats and renewals as often as a node does. Messages are made and sent by the node's own code, over a connection
that costs less than httpx. A trainer in a process of its own takes the batches and publishes versions. In turns with
that, the same workers send the same bodies to an endpoint of the same server that sends them back and does nothing
else. Bars: at least a quarter of the echo's requests per second (median of the turns' ratios), and of the samples that
the coordinator acknowledged none is lost and none trained twice.

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
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median, quantiles

import httpx
import structlog
import uvicorn
from fastapi import FastAPI, Request, Response

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.fleet import NodeId, RunId
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.generation import FinishKind, Generation
from hexcloud.domain.lease import Lease, LeaseId
from hexcloud.domain.messages import (
    Heartbeat,
    LeaseGrant,
    LeaseRenewal,
    LeaseRequest,
    Pointer,
    Register,
    StepReport,
    Submission,
)
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.raw import RAW
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.coordinator_access import AccessList, token_sha256
from hexcloud.runtime.coordinator_app import KEEP_ALIVE_S, serving
from hexcloud.runtime.rollout_bench import key
from hexcloud.runtime.rollout_commit import Commits
from hexcloud.runtime.rollout_link import CoordinatorLink
from hexcloud.runtime.rollout_work import COMMIT_TOKENS, grown, sample
from hexcloud.runtime.rollout_worker import RENEW_S
from hexcloud.runtime.trainer_link import TrainerLink

RATE_BAR = 0.25
TOKENS, PROMPT, VOCABULARY = 4096, 200, 50_000
TWICE = 50
"""One delivery in so many is repeated."""
GROUP, ETA = 8, 7
HEARTBEAT_S = 10.0
KINDS = {
    "/leases": "lease",
    "/partials": "commit",
    "/samples": "sample",
    "/heartbeat": "heartbeat",
    "/leases/renew": "renewal",
}
"""Calls by what the table names them."""
Numbers = tuple[tuple[int, ...], tuple[float, ...]]
"""Tokens and logprobs of a response."""
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
        output=str(run_dir / "output"), tokens_per_sample=TOKENS, spend_lease_s=3600.0, heartbeat_s=HEARTBEAT_S,
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
        for path in KINDS:
            app.add_route(path, echo, methods=["POST"])
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

    head_s: float = 0.0
    """Of the processor, by the head's process."""
    leases: int = 0
    call_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """How long each call took, by kind."""

    @property
    def requests(self) -> int:
        return sum(map(len, self.call_s.values()))


class LeanLink(CoordinatorLink):
    """A node's calls over a connection that costs less than httpx, so that what is measured is the coordinator."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.figures = Figures()

    async def _call(self, method: str, path: str, message: Frozen | bytes | None = None) -> httpx.Response:
        body = message if isinstance(message, bytes) else message.model_dump_json().encode() if message else b""
        begun_s = time.perf_counter()
        answer = await self._line.post(path, body, RAW if isinstance(message, bytes) else "application/json")
        self.figures.call_s[KINDS.get(path, path)].append(time.perf_counter() - begun_s)
        return httpx.Response(200, content=answer)


class EchoLink(LeanLink):
    """The same calls where what is sent comes back: answers are those that the coordinator gave before."""

    def __init__(self, line: Line, answers: dict[str, bytes]) -> None:
        super().__init__(line)
        self._answers = answers

    async def _call(self, method: str, path: str, message: Frozen | bytes | None = None) -> httpx.Response:
        await super()._call(method, path, message)
        return httpx.Response(200, content=self._answers.get(path, b""))


class Worker:
    """Asks, commits, delivers, and begins again."""

    def __init__(self, index: int, numbers: Numbers) -> None:
        self.id = worker_id(index)
        self.delivered: list[str] = []
        self._numbers = numbers
        self._line, self._echo_line = Line(self.id), Line(self.id)
        self._answers: dict[str, bytes] = {}
        self._link, self._echo = LeanLink(self._line), EchoLink(self._echo_line, self._answers)
        self._version = -1
        # Nodes come one after another, and so do their beats.
        self._beat_at_s = time.perf_counter() + random.uniform(0, HEARTBEAT_S)
        self._renew_at_s = time.perf_counter() + random.uniform(0, RENEW_S)

    async def join(self, url: str, echo_url: str) -> None:
        await self._line.open(url)
        await self._echo_line.open(echo_url)
        orders = await self._link.register(Register(node_id=self.id, role=Role.ROLLOUT, slots=1, address="127.0.0.1:1"))
        self._answers["/heartbeat"] = orders.model_dump_json().encode()

    async def repeat(self, until_s: float, figures: Figures) -> None:
        """Send to the echo what a lease's life takes, made anew each time as for the coordinator."""
        assert self.is_ready
        self._echo.figures = figures
        while time.perf_counter() < until_s:
            (lease,) = (await self._echo.leases(self._ask())).leases
            await self._live(self._echo, lease)

    async def work(self, until_s: float, figures: Figures, pause_s: float = 0.0) -> None:
        """Live through leases until then; pause about so long before each."""
        self._link.figures = figures
        while time.perf_counter() < until_s:
            if pause_s:
                await asyncio.sleep(random.uniform(0, 2 * pause_s))
            grant = await self._link.leases(self._ask())
            if grant.load is not None:
                self._version = grant.load.version
            if not grant.leases:
                await self._tell(self._link, ())
                await asyncio.sleep(0.0 if grant.load else grant.retry_s)
                continue
            self._answers["/leases"] = LeaseGrant(leases=grant.leases).model_dump_json().encode()
            made = await self._live(self._link, grant.leases[0])
            if len(self.delivered) % TWICE == 0:
                await self._link.submit(made)
            self.delivered.append(grant.leases[0].id)
            figures.leases += 1

    @property
    def is_ready(self) -> bool:
        return "/leases" in self._answers

    def _ask(self) -> LeaseRequest:
        return LeaseRequest(node_id=self.id, epoch=0, version=self._version, want=1)

    async def _live(self, link: LeanLink, lease: Lease) -> Submission:
        """Do all that a node does with a lease but to generate; return what was delivered."""
        commits = Commits(self.id, link, [lease])
        now = lease
        for start in range(0, TOKENS - COMMIT_TOKENS, COMMIT_TOKENS):
            now = grown(now, self._generation(lease, start))
            await commits.send([now])
            await self._tell(link, (lease,))
        done = sample(now, self._generation(lease, TOKENS - COMMIT_TOKENS), float(lease.index % 2))
        made = Submission.model_construct(node_id=self.id, samples=(done,))
        await link.submit(made)
        return made

    async def _tell(self, link: LeanLink, leases: tuple[Lease, ...]) -> None:
        """Send the heartbeat and the renewal that are due."""
        now_s, held = time.perf_counter(), tuple(map(key, leases))
        if now_s >= self._beat_at_s:
            self._beat_at_s = now_s + HEARTBEAT_S
            await link.heartbeat(
                Heartbeat(
                    node_id=self.id,
                    epoch=0,
                    version=self._version,
                    running=len(held),
                    generated_tokens=TOKENS * len(self.delivered),
                    leases=held,
                )
            )
        if held and now_s >= self._renew_at_s:
            self._renew_at_s = now_s + RENEW_S
            await link.renew(LeaseRenewal(node_id=self.id, leases=held))

    def _generation(self, lease: Lease, start: int) -> Generation:
        tokens, logprobs = self._numbers
        some, versions = slice(start, start + COMMIT_TOKENS), (lease.version,) * COMMIT_TOKENS
        # What an engine answers was checked when it came: that is not this benchmark's.
        return Generation.model_construct(
            rid="", tokens=tokens[some], logprobs=logprobs[some], versions=versions, finish=FinishKind.LENGTH
        )


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
    """Print how often and how soon calls were answered; return these figures."""
    print(f"\n{label}: {figures.leases / seconds:.0f} leases/s")
    print(f"{'':<12}{'calls/s':>12}{'p50 ms':>12}{'p99 ms':>12}")
    told = {"leases_per_s": figures.leases / seconds}
    for kind in KINDS.values():
        if len(some := figures.call_s[kind]) < 2:
            continue
        cuts = quantiles(some, n=100)
        row = {"calls_per_s": len(some) / seconds, "p50_ms": cuts[49] * 1e3, "p99_ms": cuts[98] * 1e3}
        print(f"{kind:<12}" + "".join(f"{value:>12.1f}" for value in row.values()))
        told |= {f"{kind}_{name}": value for name, value in row.items()}
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="fewer workers and shorter turns")
    settings = Settings(100, 64, 7, 1.0) if parser.parse_args().smoke else Settings(1000, 512, 7, 6.0)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 16_384), most))
    with tempfile.TemporaryDirectory(prefix="coordinator-") as name:
        found, lost, doubled = measured(settings, Path(name))
    print(f"\n{settings.workers} workers, samples of {TOKENS} tokens, committed every {COMMIT_TOKENS}")
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
