"""Real processes that change layouts together over gloo. The functions here run in children of the tests."""

import random
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing.spawn import spawn

from hexcloud.domain.errors import EngineError
from hexcloud.runtime.reshard import allocate, describe, reshard
from hexcloud.runtime.reshard_layout import Layout, TensorSpec, replicated, sharded
from hexcloud.runtime.reshard_plan import plan_reshard
from tests.runtime.layouts import decoder, elements, lacking_bytes, random_layout

Story = Callable[[int, int], None]


def act(stories: tuple[Story, ...], size: int, folder: Path) -> None:
    """Run stories one after the other in `size` processes, given rank and world size; raises what a rank raises."""
    spawn(_rank, args=(stories, size, str(folder / "rendezvous")), nprocs=size)  # type: ignore[no-untyped-call]


def _rank(rank: int, stories: tuple[Story, ...], size: int, rendezvous: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=size)
    for story in stories:
        story(rank, size)
    dist.destroy_process_group()


def whole_tensors(tensors: dict[str, TensorSpec], seed: int) -> dict[str, torch.Tensor]:
    """Return random bits as tensors, so NaNs of every kind are among them."""
    generator = torch.Generator().manual_seed(seed)
    bits = {2: torch.int16, 4: torch.int32}
    return {
        name: torch.randint(0, 1 << 15, spec.shape, dtype=bits[spec.item_bytes], generator=generator)
        .mul_(3)
        .view(getattr(torch, spec.dtype))
        for name, spec in tensors.items()
    }


def filled(layout: Layout, rank: int, whole: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    buffers = allocate(layout, rank)
    for name, held in layout.shards[rank].holdings.items():
        found, places = elements(held)
        buffers[held.buffer].view(-1)[torch.from_numpy(places)] = whole[name].view(-1)[torch.from_numpy(found)]
    return buffers


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def random_changes(rank: int, size: int) -> None:
    for seed in range(12):
        rng = random.Random(seed)
        tensors = decoder(2, 24, 50, rng.choice(["bfloat16", "float32"]))
        source, target = (random_layout(rng, tensors, size) for _ in range(2))
        nodes = tuple(rng.randrange(3) for _ in range(size))
        whole, bound = whole_tensors(tensors, seed), rng.choice([16 << 10, 1 << 20])
        want, got = filled(target, rank, whole), allocate(target, rank)
        plan = plan_reshard(source, target, nodes, chunk_bytes=bound // 16)
        traffic = reshard(plan, filled(source, rank, whole), got, buffer_bytes=bound)
        assert all(torch.equal(bits_of(got[name]), bits_of(want[name])) for name in want), seed
        assert traffic.peak_buffer_bytes <= bound
        crossed = torch.tensor([traffic.crossed_bytes if nodes[rank] == node else 0 for node in range(3)])
        dist.all_reduce(crossed)
        lacking = lacking_bytes(source, target, nodes)
        assert crossed.tolist() == [lacking.get(node, 0) for node in range(3)]


def narrowing(rank: int, size: int) -> None:
    wide, narrow = ({"w": TensorSpec((33, 5), dtype)} for dtype in ("float32", "bfloat16"))
    whole = {"w": torch.randn(33, 5, generator=torch.Generator().manual_seed(1))}
    for one, other in ((wide, narrow), (narrow, wide)):
        source, target = sharded(one, size, range(size - 1)), replicated(other, size, (0, size - 1))
        full = {name: value.to(getattr(torch, one[name].dtype)) for name, value in whole.items()}
        got = allocate(target, rank)
        reshard(plan_reshard(source, target, tuple(range(size))), filled(source, rank, full), got)
        expected = full["w"].to(getattr(torch, other["w"].dtype))
        assert all(torch.equal(value, expected) for value in got.values())


def real_fsdp(rank: int, size: int) -> None:
    """A module sharded over all ranks becomes the one that FSDP2 itself shards over the first two."""
    wide, small = (_sharded_module(rank, ranks) for ranks in (size, 2))
    tensors = describe(nn.Sequential(nn.Linear(7, 9), nn.Linear(9, 5)).state_dict())
    source, target = sharded(tensors, size, range(size)), sharded(tensors, size, range(2))
    got = allocate(target, rank)
    reshard(plan_reshard(source, target, tuple(range(size))), wide, got)
    assert all(torch.equal(got[name], local) for name, local in small.items())


def _sharded_module(rank: int, ranks: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    module = nn.Sequential(nn.Linear(7, 9), nn.Linear(9, 5))
    mesh = DeviceMesh("cpu", list(range(ranks)))
    if rank >= ranks:
        return {}
    fully_shard(module, mesh=mesh)
    return {name: parameter.to_local().detach() for name, parameter in module.named_parameters()}  # type: ignore[attr-defined]


def wrong_buffer(rank: int, size: int) -> None:
    tensors = {"w": TensorSpec((4, 4), "float32")}
    layout = replicated(tensors, size, range(size))
    plan = plan_reshard(layout, layout, tuple(range(size)))
    for bad in ({}, {"w": torch.zeros(4, 5)}, {"w": torch.zeros(4, 4).T}):
        try:
            reshard(plan, bad, allocate(layout, rank))
        except EngineError as error:
            assert "buffer w must be there" in str(error)
        else:
            raise AssertionError("a wrong buffer was taken")
