"""A member of a weights group in a process of its own, as an engine's rank is: takes orders as JSON lines on stdin."""

import json
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.rendezvous import rendezvous

LIMIT = timedelta(seconds=60)


def enter(order: dict[str, Any]) -> dist.ProcessGroup:
    store, *_ = next(
        rendezvous(
            f"tcp://127.0.0.1:{order['port']}", order["rank"], order["world_size"], timeout=timedelta(seconds=60)
        )
    )
    prefixed = c10d.PrefixStore(order["name"], store)
    helper = c10d._new_process_group_helper
    group: dist.ProcessGroup
    group, _ = helper(
        order["world_size"], order["rank"], [], dist.Backend("gloo"), prefixed, group_name=order["name"], timeout=LIMIT
    )
    c10d._world.pg_group_ranks[group] = {rank: rank for rank in range(order["world_size"])}
    return group


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def main() -> None:
    group = enter(json.loads(sys.stdin.readline()))
    say("entered")
    for line in sys.stdin:
        tensors = {}
        for name, dtype, shape in json.loads(line):
            tensors[name] = torch.empty(shape, dtype=getattr(torch, dtype))
            dist.broadcast(tensors[name], src=0, group=group)
        say(json.dumps({name: tensor.double().sum().item() for name, tensor in tensors.items()}))


if __name__ == "__main__":
    main()
