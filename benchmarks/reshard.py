"""Does a change of layout move only what is lacking, bit by bit, and how much faster is it than a checkpoint?

64 random pairs of layouts (flat, rows, columns, copies, hybrid, rollout fused or not, by chance; one to four ranks on
one to four nodes) are changed by real processes over gloo. Then gangs of a decoder with its Adam moments change their
size; torch's DCP saves and loads the same state between the same processes, in turns with it; the best of a few turns
counts, as whatever else the machine does only adds to it. Bars: all bits equal, bytes at most 1.02 times what each
receiving node lacks (0 where it lacks nothing), at least 5 times faster than DCP.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.multiprocessing.spawn import start_processes

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hexcloud.runtime.reshard import BUFFER_BYTES, allocate, reshard
from hexcloud.runtime.reshard_layout import Layout, TensorSpec, sharded
from hexcloud.runtime.reshard_plan import plan_reshard
from tests.runtime.layouts import decoder, lacking_bytes, random_layout
from tests.runtime.reshard_world import bits_of, filled, whole_tensors

BYTES_BAR, SPEED_BAR = 1.02, 5.0
WORLD = 4
CHANGES = ((4, 3), (2, 4), (3, 2), (4, 2))
"""Ranks before and after."""


@dataclass(frozen=True)
class Settings:
    pairs: int
    hidden: int
    layers: int
    rounds: int
    folder: str


def random_pairs(rank: int, settings: Settings) -> dict[str, float]:
    """Return exact pairs, the worst ratio of received to lacking bytes of any node, and the peak share of buffers."""
    exact, worst, peak, moved = 0, 0.0, 0.0, 0
    for seed in range(settings.pairs):
        rng = random.Random(seed)
        tensors = decoder(2, 48, 101, rng.choice(["bfloat16", "float32"]))
        source, target = (random_layout(rng, tensors, WORLD) for _ in range(2))
        nodes = tuple(rng.randrange(WORLD) for _ in range(WORLD))
        whole, bound = whole_tensors(tensors, seed), rng.choice([32 << 10, 1 << 20])
        want, got = filled(target, rank, whole), allocate(target, rank)
        plan = plan_reshard(source, target, nodes, chunk_bytes=bound // 16)
        traffic = reshard(plan, filled(source, rank, whole), got, buffer_bytes=bound)
        is_exact = all(torch.equal(bits_of(got[name]), bits_of(want[name])) for name in want)
        crossed = [traffic.crossed_bytes if nodes[rank] == node else 0 for node in range(WORLD)]
        found = torch.tensor([int(not is_exact), *crossed])
        dist.all_reduce(found)
        exact += int(found[0] == 0)
        for node, lacking in lacking_bytes(source, target, nodes).items():
            worst = max(worst, ratio(int(found[1 + node]), lacking))
            moved += int(found[1 + node])
        peak = max(peak, traffic.peak_buffer_bytes / bound)
    return {"exact_pairs": exact, "worst_bytes_ratio": worst, "peak_buffer_share": peak, "moved_mb": moved / 1e6}


def ratio(crossed: int, lacking: int) -> float:
    """Return received over lacking; bytes that came for nothing are infinitely too many."""
    return crossed / lacking if lacking else (float("inf") if crossed else 1.0)


def states(settings: Settings) -> dict[str, TensorSpec]:
    """Return weights and both Adam moments."""
    model = decoder(settings.layers, settings.hidden, 16_000, "float32")
    return {f"{kind}.{name}": spec for kind in ("weight", "exp_avg", "exp_avg_sq") for name, spec in model.items()}


def resizes(rank: int, settings: Settings) -> Iterator[dict[str, float]]:
    """Yield the seconds of each change of size: by us, by DCP through the disk, and by DCP through memory."""
    tensors = states(settings)
    whole = whole_tensors(tensors, 0)
    meshes = {ranks: DeviceMesh("cpu", list(range(ranks))) for ranks in {one for pair in CHANGES for one in pair}}
    groups = {ranks: dist.new_group(list(range(ranks))) for ranks in meshes}
    for before, after in CHANGES:
        gangs = [
            _Gang(sharded(tensors, WORLD, range(ranks)), meshes[ranks], groups[ranks]) for ranks in (before, after)
        ]
        local, want = (filled(gang.layout, rank, whole) for gang in gangs)
        case = _Case(rank, (gangs[0], gangs[1]), local, want)
        yield {"before": before, "after": after, **measure(case, settings)}


@dataclass(frozen=True)
class _Gang:
    layout: Layout
    mesh: DeviceMesh
    group: "dist.ProcessGroup"

    def distributed(self, local: dict[str, torch.Tensor]) -> dict[str, DTensor]:
        """Return what FSDP2 would hand to DCP."""
        wholes = {name: torch.empty(spec.shape, device="meta") for name, spec in self.layout.tensors.items()}
        return {
            name: DTensor.from_local(
                part, self.mesh, [Shard(0)], run_check=False, shape=wholes[name].shape, stride=wholes[name].stride()
            )
            for name, part in local.items()
        }


@dataclass(frozen=True)
class _Case:
    rank: int
    gangs: tuple[_Gang, _Gang]
    local: dict[str, torch.Tensor]
    want: dict[str, torch.Tensor]

    def by_dcp(self, path: Path) -> dict[str, torch.Tensor]:
        before, after = self.gangs
        got = allocate(after.layout, self.rank)
        if self.local:
            save(before.distributed(self.local), checkpoint_id=path, process_group=before.group)
        dist.barrier()
        if got:
            load(after.distributed(got), checkpoint_id=path, process_group=after.group)
        return got

    def by_us(self) -> dict[str, torch.Tensor]:
        before, after = self.gangs
        got = allocate(after.layout, self.rank)
        reshard(plan_reshard(before.layout, after.layout, tuple(range(WORLD))), self.local, got)
        return got


def measure(case: _Case, settings: Settings) -> dict[str, float]:
    ways: dict[str, Callable[[Path], dict[str, torch.Tensor]]] = {
        "reshard_s": lambda _path: case.by_us(),
        "dcp_s": case.by_dcp,
        "dcp_in_memory_s": case.by_dcp,
    }
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(settings.rounds + 1):
        for way, change in ways.items():
            folder = Path("/dev/shm" if way == "dcp_in_memory_s" else settings.folder)
            path = folder / f"{Path(settings.folder).name}-{way}"
            dist.barrier()
            start = time.perf_counter()
            got = change(path)
            dist.barrier()
            if turn:  # the first of each warms up
                taken[way].append(time.perf_counter() - start)
            assert all(torch.equal(bits_of(got[name]), bits_of(case.want[name])) for name in case.want), way
            if case.rank == 0:
                shutil.rmtree(path, ignore_errors=True)
    return {way: min(seconds) for way, seconds in taken.items()}


def run_rank(rank: int, settings: Settings) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{settings.folder}/rendezvous", rank=rank, world_size=WORLD)
    pairs = random_pairs(rank, settings)
    rows = list(resizes(rank, settings))
    if rank == 0:
        Path(settings.folder, "found.json").write_text(json.dumps([pairs, rows]))
    dist.barrier()
    dist.destroy_process_group()


def report(pairs: dict[str, float], rows: list[dict[str, float]], settings: Settings) -> int:
    size_mb = sum(spec.size * spec.item_bytes for spec in states(settings).values()) / 1e6
    print(
        f"{settings.pairs} random pairs: {pairs['exact_pairs']:.0f} exact, {pairs['moved_mb']:.1f} MB between nodes, "
    )
    print(
        f"worst node {pairs['worst_bytes_ratio']:.4f} of what it lacks, "
        f"buffers {pairs['peak_buffer_share']:.2f} of the bound"
    )
    print(f"\nweights and moments of {size_mb:.0f} MB, buffers of {BUFFER_BYTES >> 20} MiB at most")
    print(f"{'ranks':<10}{'reshard s':>12}{'DCP s':>12}{'ratio':>8}{'DCP in memory s':>18}{'ratio':>8}")
    for row in rows:
        ours, disk, memory = row["reshard_s"], row["dcp_s"], row["dcp_in_memory_s"]
        change = f"{row['before']:.0f} -> {row['after']:.0f}"
        print(f"{change:<10}{ours:>12.3f}{disk:>12.3f}{disk / ours:>8.1f}{memory:>18.3f}{memory / ours:>8.1f}")
    speed = sum(row["dcp_s"] for row in rows) / sum(row["reshard_s"] for row in rows)
    exact, worst = int(pairs["exact_pairs"]), pairs["worst_bytes_ratio"]
    bars: dict[str, dict[str, float | bool]] = {
        "exact_pairs": {"value": exact, "bar": settings.pairs, "ok": exact == settings.pairs},
        "bytes_over_lacking": {"value": worst, "bar": BYTES_BAR, "ok": worst <= BYTES_BAR},
        "dcp_over_reshard": {"value": speed, "bar": SPEED_BAR, "ok": speed >= SPEED_BAR},
    }
    print(
        json.dumps({"benchmark": "reshard", "metrics": {**pairs, "state_mb": size_mb, "resizes": rows}, "bars": bars})
    )
    return 0 if all(bar["ok"] for bar in bars.values()) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="fewer pairs and a small model")
    is_smoke = parser.parse_args().smoke
    with tempfile.TemporaryDirectory(prefix="reshard-") as folder:
        settings = Settings(8, 192, 4, 3, folder) if is_smoke else Settings(64, 768, 6, 3, folder)
        # Forked, as four imports of torch would take longer than the rest.
        start_processes(run_rank, args=(settings,), nprocs=WORLD, start_method="fork")  # type: ignore[no-untyped-call]
        pairs, rows = json.loads(Path(folder, "found.json").read_text())
    return report(pairs, rows, settings)


if __name__ == "__main__":
    sys.exit(main())
