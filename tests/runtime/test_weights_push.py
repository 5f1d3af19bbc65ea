"""The sender of pushed weights, with members in processes of their own; real SGLang is in test_contract_push.py."""

import base64
import json
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hexcloud.domain.errors import EngineError
from hexcloud.domain.weight_push import TensorSpec, UpdateGroup
from hexcloud.runtime.weights_push import WeightsGroup, push_tensors

STATE = {"a": torch.arange(6.0).view(2, 3), "b": torch.full((1000,), 0.5, dtype=torch.bfloat16), "c": torch.ones(())}
SUMS = {"a": 15.0, "b": 500.0, "c": 1.0}


class Member:
    """An engine of one rank, whose process takes part in the group and says what came."""

    ranks = 1

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("push_member.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.came: list[dict[str, float]] = []
        self.versions: list[int] = []
        self.rank = 0
        self.refuses = False

    def say(self, order: object) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def join(self, group: UpdateGroup, rank_offset: int) -> None:
        self.rank = rank_offset
        assert self.say({**group.model_dump(), "rank": rank_offset}) == "entered\n"

    def leave(self, group: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def receive(self, group: str, tensors: tuple[TensorSpec, ...], version: int) -> None:
        if self.refuses:
            raise EngineError("no session is open")
        self.came.append(json.loads(self.say([(one.name, one.dtype, one.shape) for one in tensors])))
        self.versions.append(version)

    def take(self, payloads: tuple[str, ...], version: int) -> None:
        raise NotImplementedError

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def members() -> Iterator[tuple[Member, Member]]:
    both = Member(), Member()
    yield both
    for member in both:
        member.end()


def test_every_engine_gets_every_tensor_of_every_version(members: tuple[Member, Member]) -> None:
    group = WeightsGroup(members, "gloo")
    assert (group.group.world_size, [member.rank for member in members]) == (3, [1, 2])
    group.push(STATE, version=4)
    group.push({"a": STATE["a"] * 2}, version=5)
    for member in members:
        assert member.came == [SUMS, {"a": 30.0}]
        assert member.versions == [4, 5]
    group.close()


def test_an_engine_that_refuses_ends_the_push_and_nobody_waits(members: tuple[Member, Member]) -> None:
    group = WeightsGroup(members, "gloo")
    members[1].refuses = True
    begun_s = time.monotonic()
    with pytest.raises(EngineError, match="no session is open"):
        group.push({f"t{i}": torch.ones(1_000_000) for i in range(20)}, version=4)
    assert time.monotonic() - begun_s < 20
    for member in members:
        member.end()


def test_tensors_are_handed_over_once_for_each_rank() -> None:
    class Taker(Member):
        ranks = 2

        def __init__(self) -> None:
            self.payloads: tuple[str, ...] = ()

        def take(self, payloads: tuple[str, ...], version: int) -> None:
            self.payloads, self.version = payloads, version

    taker = Taker()
    push_tensors(taker, STATE, version=6)
    assert taker.version == 6 and len(taker.payloads) == 2
    for payload in taker.payloads:
        named = dict(pickle.loads(base64.b64decode(payload)))
        assert {name: tensor.double().sum().item() for name, tensor in named.items()} == SUMS
        assert named["b"].dtype is torch.bfloat16
