"""Weights pushed from the trainer's memory into engines that run: by broadcast to any number, or as tensors to one.

The group is one that torch has no public call for: its other members are processes of another program, which enter it
beside a default group of their own. SGLang's way in (checked with 0.5.23 over gloo) is a TCP store, prefixed by the
group's name.
"""

import base64
import pickle
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.rendezvous import rendezvous

from hexcloud.domain.errors import EngineError
from hexcloud.domain.weight_push import TensorSpec, UpdateGroup

GROUP_S = 60.0
"""For all members to enter, and for each broadcast."""
_LOOK_S = 0.0005


class Receiver(Protocol):
    """An engine into which weights are pushed. Calls block until the sender has done its part."""

    ranks: int
    """Its tensor-parallel degree."""

    def join(self, group: UpdateGroup, rank_offset: int) -> None:
        """Enter a group with ranks from `rank_offset` on. Raises EngineError."""
        ...

    def leave(self, group: str) -> None:
        """Leave a group, by its name. Raises EngineError."""
        ...

    def receive(self, group: str, tensors: tuple[TensorSpec, ...], version: int) -> None:
        """Take the broadcasts of these tensors, in order. Raises EngineError: the engine is then of no more use."""
        ...

    def take(self, payloads: tuple[str, ...], version: int) -> None:
        """Take pickled tensors in base64, one payload per rank. Raises EngineError as `receive` does."""
        ...


class WeightsGroup:
    """The sender of a group, and its engines. Made when all have entered; `close` ends it."""

    def __init__(self, receivers: Sequence[Receiver], backend: str, address: str = "127.0.0.1") -> None:
        """`address`: this machine's, as the engines reach it. Raises EngineError when one does not enter."""
        self._receivers = tuple(receivers)
        self._pool = ThreadPoolExecutor(len(self._receivers), thread_name_prefix="weights-push")
        port = _free_port(address)
        world_size = 1 + sum(one.ranks for one in self._receivers)
        name = f"hexcloud-{port}"
        self.group = UpdateGroup(name=name, address=address, port=port, world_size=world_size, backend=backend)
        offsets = [1 + sum(one.ranks for one in self._receivers[:index]) for index in range(len(self._receivers))]
        entering = [
            self._pool.submit(one.join, self.group, offset)
            for one, offset in zip(self._receivers, offsets, strict=True)
        ]
        self._process_group = _enter(self.group)
        _results(entering)

    def push(self, state: Mapping[str, torch.Tensor], version: int) -> None:
        """Broadcast all tensors, one after the other, as a version of the weights. Raises EngineError.

        After an error the group is of no more use, and the engines are to be replaced.
        """
        tensors = {name: tensor.detach().contiguous() for name, tensor in state.items()}
        specs = tuple(
            TensorSpec(name=name, dtype=str(tensor.dtype).removeprefix("torch."), shape=tuple(tensor.shape))
            for name, tensor in tensors.items()
        )
        receiving = [self._pool.submit(one.receive, self.group.name, specs, version) for one in self._receivers]
        for tensor in tensors.values():
            self._broadcast(tensor, receiving)
        _results(receiving)

    def close(self) -> None:
        """Leave the group with all engines. Raises EngineError."""
        leaving = [self._pool.submit(one.leave, self.group.name) for one in self._receivers]
        dist.destroy_process_group(self._process_group)
        self._pool.shutdown()
        _results(leaving)

    def _broadcast(self, tensor: torch.Tensor, receiving: "Sequence[Future[None]]") -> None:
        """Send one tensor; look at the receivers meanwhile, since one that refused will never take it."""
        work = dist.broadcast(tensor, src=0, group=self._process_group, async_op=True)
        while not work.is_completed():
            for one in receiving:
                if one.done() and one.exception() is not None:
                    one.result()
            time.sleep(_LOOK_S)
        try:
            work.wait()
        except RuntimeError as error:
            raise EngineError(f"a broadcast to the group {self.group.name} failed: {error}") from error


def push_tensors(receiver: Receiver, state: Mapping[str, torch.Tensor], version: int) -> None:
    """Hand all tensors to an engine of this same machine as a version of the weights. Raises EngineError."""
    named = [(name, tensor.detach().cpu().contiguous()) for name, tensor in state.items()]
    # Plain pickle and not torch's own: that one would share memory by file descriptors, which ends SGLang on a CPU.
    payload = base64.b64encode(pickle.dumps(named)).decode()
    receiver.take((payload,) * receiver.ranks, version)


def _enter(group: UpdateGroup) -> Any:
    timeout = timedelta(seconds=GROUP_S)
    try:
        store, *_ = next(rendezvous(f"tcp://{group.address}:{group.port}", 0, group.world_size, timeout=timeout))
        helper: Callable[..., tuple[Any, Any]] = c10d._new_process_group_helper
        process_group, _ = helper(
            group.world_size,
            0,
            [],
            dist.Backend(group.backend),
            c10d.PrefixStore(group.name, store),
            group_name=group.name,
            timeout=timeout,
        )
    except RuntimeError as error:
        raise EngineError(f"the group {group.name} did not come together: {error}") from error
    c10d._world.pg_group_ranks[process_group] = {rank: rank for rank in range(group.world_size)}
    return process_group


def _results(calls: "Sequence[Future[None]]") -> None:
    """Wait for all, then raise the first error there was."""
    for call in calls:
        call.exception()
    for call in calls:
        call.result()


def _free_port(address: str) -> int:
    with socket.create_server((address, 0)) as server:
        return int(server.getsockname()[1])
