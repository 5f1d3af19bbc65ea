"""How small are deltas of real consecutive versions, how fast are they made and applied, and how well do links fill?

A decoder is really trained (AdamW, fp32, next byte of this project's own documents) at learning rates of RL; versions
are published in bf16. Bars: delta bytes at most 1.6 times what positions (n*H2(p)) and 16 raw bits per changed value
need; encode and apply with the result's digest, in memory and on two threads as on nodes, at no less than 1/25 of the
rate at which the same bytes are copied in turns with it (median of the turns' ratios, in seconds of the busiest
thread's processor, so that a busy machine slows both sides or none; by the wall clock, in the metrics, it holds where
both threads have a core of their own); no delta where it is no gain.

Then versions travel between real processes over sockets that a token bucket paces: a full sync fills at least 85 % of
the line, and of 8 workers in a region, fed by the planner's routes, exactly one gets its copy over the region's link;
all verify what they got.
"""

import argparse
import asyncio
import json
import math
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.inputs.delta_pace import Turn, turns
from hexcloud.adapters.markets.snapshot import SnapshotMarket
from hexcloud.domain.delta import WeightsDelta
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.messages import WeightsManifest
from hexcloud.domain.plan import SlotName, WeightRoute
from hexcloud.planner.links import link_graph
from hexcloud.planner.routes import weight_routes
from hexcloud.runtime.delta import apply_delta, make_delta
from hexcloud.runtime.delta_way import WayCosts, cheapest_way
from hexcloud.runtime.probe import LinkCap
from hexcloud.runtime.rollout_weights import WEIGHTS_FILE, WeightFolder
from hexcloud.runtime.token_bucket import TokenBucket
from hexcloud.runtime.weight_relay import WeightRelay, relay_source
from hexcloud.runtime.weights import write_weights

SIZE_BAR, RATE_BAR, LINE_BAR, COPIES_BAR = 1.6, 1 / 25, 0.85, 1.0
LEARNING_RATES = (2e-5, 5e-6, 1e-6)
WORKERS = 8
MEMORY_BYTES = 64 << 20
"""Versions are repeated to this size before rates are taken: a copy that stays in the caches is none of memory."""
TOKEN = "of-this-run"
ROOT = Path(__file__).resolve().parents[1]
HEAD = SlotName("trainer-0")

Version = tuple[Path, WeightsManifest]


@dataclass(frozen=True)
class Settings:
    hidden: int
    layers: int
    warm_steps: int
    """At the first rate, before the first version: Adam's moments must be those of a running job, not of its start,
    where every weight moves by the whole learning rate."""
    versions: int
    """Per learning rate."""
    line_bytes_per_s: float


def trained(settings: Settings, folder: Path) -> Iterator[tuple[float, list[Version]]]:
    """Yield, for each learning rate in turn, consecutive versions of one training run that goes on."""
    torch.manual_seed(0)
    heads = settings.hidden // 64
    config = Qwen2Config(
        vocab_size=256,
        hidden_size=settings.hidden,
        intermediate_size=4 * settings.hidden,
        num_hidden_layers=settings.layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        tie_word_embeddings=True,
    )
    model = Qwen2ForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATES[0], betas=(0.9, 0.95), weight_decay=0.05)
    text = b"".join(path.read_bytes() for path in sorted((ROOT / "docs").rglob("*.md")))
    tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    for _ in range(settings.warm_steps):
        train_step(model, optimizer, tokens)
    for run, learning_rate in enumerate(LEARNING_RATES):
        optimizer.param_groups[0]["lr"] = learning_rate
        versions = []
        for version in range(100 * run, 100 * run + settings.versions + 1):
            train_step(model, optimizer, tokens)
            state = {name: value.to(torch.bfloat16) for name, value in model.state_dict().items()}
            file = write_weights(folder / f"v{version}", state, config.to_dict())
            manifest = WeightsManifest(epoch=0, version=version, sha256=file.sha256, size=file.size)
            versions.append((file.path, manifest))
        yield learning_rate, versions


def train_step(model: Qwen2ForCausalLM, optimizer: torch.optim.Optimizer, tokens: torch.Tensor) -> None:
    begins = torch.randint(len(tokens) - 65, (4,))
    batch = torch.stack([tokens[begin : begin + 64] for begin in begins])
    loss = model(input_ids=batch, labels=batch).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


@dataclass(frozen=True)
class Step:
    """What one delta was."""

    learning_rate: float
    delta: WeightsDelta
    changed: float
    over_ideal: float
    size: int
    """Bytes that each turn encodes, applies and copies, in memory."""
    turns: list[Turn]
    file_bytes_per_s: float
    """From file to file, on the wall clock."""
    is_exact: bool

    @property
    def bytes_per_s(self) -> float:
        return self.size / median(turn.busy_s for turn in self.turns)

    @property
    def wall_bytes_per_s(self) -> float:
        return self.size / min(turn.wall_s for turn in self.turns)

    @property
    def copy_bytes_per_s(self) -> float:
        return self.size / median(turn.copy_s for turn in self.turns)

    @property
    def rate(self) -> float:
        return median(turn.copy_s / turn.busy_s for turn in self.turns)

    @property
    def wall_rate(self) -> float:
        return max(turn.copy_s / turn.wall_s for turn in self.turns)


def measured(learning_rate: float, pair: tuple[Version, Version], folder: Path) -> Step:
    """Make and apply the delta between two versions, on disk and in memory."""
    (before, _), (after, _) = pair
    old, new = (np.fromfile(path, np.uint16) for path in (before, after))
    path, got = folder / "delta", folder / "got"
    start = time.perf_counter()
    if (delta := make_delta(pair[0], pair[1], path)) is None:
        raise RuntimeError("consecutive versions have no delta")
    apply_delta(before, (path, delta), got)
    file_s = time.perf_counter() - start
    share = float((old != new).mean())
    entropy = -share * math.log2(share) - (1 - share) * math.log2(1 - share)
    large = [np.tile(words, -(-MEMORY_BYTES // words.nbytes)) for words in (old, new)]
    return Step(
        learning_rate,
        delta,
        share,
        delta.size / (len(new) * (entropy + 16 * share) / 8),
        large[1].nbytes,
        turns(*large),
        new.nbytes / file_s,
        got.read_bytes() == after.read_bytes(),
    )


async def serve(folder: Path, version: Version, rate: float) -> WeightRelay:
    """Start a relay that has a version and a line of this rate."""
    path, manifest = version
    directory = WeightFolder(folder, LinkCap()).directory(manifest)
    directory.mkdir(parents=True, exist_ok=True)
    if not (directory / WEIGHTS_FILE).exists():
        (directory / WEIGHTS_FILE).hardlink_to(path)
    relay = WeightRelay(TOKEN, LinkCap(TokenBucket(rate)))
    relay.offer(manifest, directory)
    await relay.start()
    return relay


def worker(folder: Path, manifest: WeightsManifest, rate: float, pipe: Connection) -> None:
    """Run a rollout node's weights: fetch from the source that the pipe names, and pass on what arrives."""

    async def life() -> None:
        weights = WeightFolder(folder, LinkCap())
        relay = WeightRelay(TOKEN, LinkCap(TokenBucket(rate)))
        relay.offer(manifest, weights.directory(manifest))
        await relay.start()
        pipe.send(relay.port)
        source = relay_source(await asyncio.to_thread(pipe.recv), TOKEN)
        await weights.fetch(manifest, source)  # verifies
        pipe.send(time.monotonic())
        await asyncio.to_thread(pipe.recv)
        pipe.send(relay.sent_bytes)
        await relay.close()

    asyncio.run(life())


@dataclass(frozen=True)
class Sync:
    """What a version's way to its workers was."""

    seconds: float
    """Until the last worker had verified its copy."""
    head_bytes: int
    all_bytes: int


async def spread(version: Version, routes: tuple[WeightRoute, ...], rates: dict[SlotName, float], folder: Path) -> Sync:
    """Send a version from the head to every worker along the routes; each machine sends at its own rate."""
    head = await serve(folder / "head", version, rates[HEAD])
    addresses = {HEAD: f"127.0.0.1:{head.port}"}
    context = multiprocessing.get_context("fork")
    pipes: dict[SlotName, Connection] = {}
    processes = []
    for route in routes:
        name = route.target
        pipes[name], theirs = context.Pipe()
        process = context.Process(target=worker, args=(folder / name, version[1], rates[name], theirs))
        process.start()
        processes.append(process)
        addresses[name] = f"127.0.0.1:{await asyncio.to_thread(pipes[name].recv)}"
    start = time.monotonic()
    for route in routes:
        pipes[route.target].send(addresses[route.source])
    done = [await asyncio.to_thread(pipe.recv) for pipe in pipes.values()]
    for pipe in pipes.values():
        pipe.send("stop")
    passed_on = [await asyncio.to_thread(pipe.recv) for pipe in pipes.values()]
    for process in processes:
        await asyncio.to_thread(process.join)
    await head.close()
    return Sync(max(done) - start, head.sent_bytes, head.sent_bytes + sum(passed_on))


def planned(line_bytes_per_s: float, workers: int) -> tuple[tuple[WeightRoute, ...], dict[SlotName, float]]:
    """Return the planner's routes from a trainer to workers in one zone of another region, and what each can send.

    Rates keep the proportion of the planner's links: the slowest one, between the regions, is the line.
    """
    market = SnapshotMarket(("aws",)).market(0.0)
    zoned = sorted((offer for offer in market.offers if offer.zone), key=lambda offer: offer.id)
    far = next(offer for offer in zoned if offer.region != zoned[0].region)
    machines = {HEAD: zoned[0], **{SlotName(f"rollout-{index}"): far for index in range(workers)}}
    links = link_graph(machines, market, FleetState())
    routes = weight_routes(links, HEAD, tuple(name for name in machines if name != HEAD), machines)
    slowest = min(route.gb_per_s for route in routes)
    rates = dict.fromkeys(machines, line_bytes_per_s)
    for route in routes:
        rates[route.source] = route.gb_per_s / slowest * line_bytes_per_s
    return routes, rates


def train_and_measure(settings: Settings, folder: Path) -> tuple[list[Step], list[Version]]:
    steps: list[Step] = []
    ends: list[Version] = []
    for learning_rate, versions in trained(settings, folder):
        steps += [measured(learning_rate, pair, folder) for pair in pairwise(versions)]
        ends.append(versions[-1])
    return steps, ends


def has_fallback(version: Version, folder: Path) -> bool:
    """Is there no delta to weights that have nothing in common with the base?"""
    path, manifest = version
    content = bytearray(path.read_bytes())
    header = 8 + int.from_bytes(content[:8], "little")
    content[header:] = np.random.default_rng(0).bytes(len(content) - header)
    other = folder / "other"
    other.write_bytes(content)
    far = manifest.model_copy(update={"version": manifest.version + 1, "sha256": "another"})
    return make_delta(version, (other, far), folder / "none") is None and not (folder / "none").exists()


def print_steps(steps: list[Step]) -> None:
    names = ("lr", "changed", "delta MB", "of full", "of ideal", "GB/s", "copy GB/s", "rate", "wall GB/s", "files GB/s")
    print(" ".join(f"{name:>10}" for name in names))
    for step in steps:
        size, full = step.delta.size, step.delta.result.size
        shares = f"{step.changed:>10.2%} {size / 1e6:>10.2f} {size / full:>10.2%} {step.over_ideal:>10.2f}"
        rates = f"{step.bytes_per_s / 1e9:>10.2f} {step.copy_bytes_per_s / 1e9:>10.1f} {step.rate:>10.3f}"
        walls = f"{step.wall_bytes_per_s / 1e9:>10.2f} {step.file_bytes_per_s / 1e9:>10.2f}"
        print(f"{step.learning_rate:>10.0e} {shares} {rates} {walls}")


def print_choices(steps: list[Step]) -> None:
    """Show what a worker behind by so many versions is told, if each version costs what the last one of a rate did."""
    costs = WayCosts(link_bytes_per_s=125e6, apply_bytes_per_s=min(step.bytes_per_s for step in steps))
    print("\non 1 Gb/s, a worker behind takes the chain up to this many versions, then the whole file:")
    for step in {step.learning_rate: step for step in steps}.values():
        told = [
            step.delta.result.model_copy(update={"version": number, "sha256": str(number)}) for number in range(200)
        ]
        deltas = [
            step.delta.model_copy(update={"base": told[number], "result": told[number + 1]}) for number in range(199)
        ]
        longest = max(
            (behind for behind in range(1, 200) if cheapest_way(told[199 - behind], told[199], deltas, costs)),
            default=0,
        )
        print(f"  lr {step.learning_rate:.0e}: {longest}")


def bar(value: float, limit: float, is_most: bool) -> dict[str, float | bool]:
    return {"value": value, "bar": limit, "ok": value <= limit if is_most else value >= limit}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a smaller model and a shorter transfer")
    is_smoke = parser.parse_args().smoke
    torch.set_num_threads(1)
    settings = Settings(256, 3, 12, 1, 10e6) if is_smoke else Settings(512, 8, 24, 2, 16e6)
    with tempfile.TemporaryDirectory(prefix="weight-sync-") as name:
        folder = Path(name)
        steps, ends = train_and_measure(settings, folder)
        print_steps(steps)
        print_choices(steps)
        falls_back = has_fallback(ends[0], folder)
        routes, rates = planned(settings.line_bytes_per_s, 1)
        single = asyncio.run(spread(ends[0], routes, rates, folder / "single"))
        routes, rates = planned(settings.line_bytes_per_s, WORKERS)
        region = asyncio.run(spread(ends[0], routes, rates, folder / "region"))
    size = ends[0][1].size
    line_s = size / settings.line_bytes_per_s
    print(f"\n{size / 1e6:.1f} MB over a line of {settings.line_bytes_per_s / 1e6:.0f} MB/s ({line_s:.2f} s)")
    print(f"{'to':<24}{'seconds':>9}{'of line':>9}{'copies over the line':>22}{'copies in all':>15}")
    for label, sync in (("one worker", single), (f"{WORKERS} workers, one region", region)):
        copies, total = sync.head_bytes / size, sync.all_bytes / size
        print(f"{label:<24}{sync.seconds:>9.2f}{line_s / sync.seconds:>9.1%}{copies:>22.3f}{total:>15.3f}")
    rate, wall_rate = min(step.rate for step in steps), min(step.wall_rate for step in steps)
    bars = {
        "delta_over_ideal": bar(max(step.over_ideal for step in steps), SIZE_BAR, is_most=True),
        "encode_apply_over_copy": bar(rate, RATE_BAR, is_most=False),
        "exact_deltas": bar(sum(step.is_exact for step in steps), len(steps), is_most=False),
        "full_when_no_gain": bar(float(falls_back), 1.0, is_most=False),
        "full_sync_of_line": bar(line_s / single.seconds, LINE_BAR, is_most=False),
        "copies_over_region_link": bar(region.head_bytes / size, COPIES_BAR, is_most=True),
    }
    metrics = {
        "changed": {f"{step.learning_rate:.0e}": step.changed for step in steps},
        "delta_of_full": {f"{step.learning_rate:.0e}": step.delta.size / step.delta.result.size for step in steps},
        "encode_apply_gb_per_s": min(step.bytes_per_s for step in steps) / 1e9,
        "encode_apply_wall_gb_per_s": min(step.wall_bytes_per_s for step in steps) / 1e9,
        "encode_apply_over_copy_by_processor": rate,
        "encode_apply_over_copy_by_wall": wall_rate,
        "file_to_file_gb_per_s": min(step.file_bytes_per_s for step in steps) / 1e9,
        "region_sync_of_line": line_s / region.seconds,
    }
    print(json.dumps({"benchmark": "weight_sync", "metrics": metrics, "bars": bars}))
    return 0 if all(one["ok"] for one in bars.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
