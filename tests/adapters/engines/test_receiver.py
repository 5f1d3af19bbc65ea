"""Pushed weights at servers that are older or that fail; the real server is in test_contract_push.py."""

from collections.abc import Iterator

import pytest

from hexcloud.adapters.engines.client import EngineClient
from hexcloud.adapters.engines.model_folder import ModelFacts
from hexcloud.adapters.engines.receiver import PushReceiver
from hexcloud.domain.errors import EngineError
from hexcloud.domain.generation import PauseMode
from hexcloud.domain.weight_push import TensorSpec, UpdateGroup
from tests.adapters.engines.odd_server import OddServer, odd_server

FINE = (200, {"success": True, "message": "fine"})
TENSORS = (TensorSpec(name="a.weight", dtype="bfloat16", shape=(2, 3)),)
PAUSE, RESUME = "/pause_generation", "/continue_generation"
BEGIN, END = "/begin_weight_update", "/end_weight_update"
DISTRIBUTED, TENSOR = "/update_weights_from_distributed", "/update_weights_from_tensor"


@pytest.fixture
def odd() -> Iterator[OddServer]:
    with odd_server() as server:
        server.answers |= dict.fromkeys((PAUSE, RESUME, BEGIN, END, DISTRIBUTED, TENSOR), FINE)
        yield server


@pytest.fixture
def receiver(odd: OddServer) -> Iterator[PushReceiver]:
    client = EngineClient(odd.url, ModelFacts(vocab=21))
    yield PushReceiver(client, ranks=2)
    client.close()


def test_a_push_is_a_session_within_a_pause(odd: OddServer, receiver: PushReceiver) -> None:
    receiver.receive("group", TENSORS, version=7)
    assert odd.paths == [PAUSE, BEGIN, DISTRIBUTED, END, RESUME]
    asked = dict(odd.asked)
    assert asked[PAUSE] == {"mode": "retract"}
    assert asked[DISTRIBUTED] == {
        "names": ["a.weight"],
        "dtypes": ["bfloat16"],
        "shapes": [[2, 3]],
        "group_name": "group",
        "weight_version": "7",
        "flush_cache": True,
    }


def test_an_engine_without_sessions_does_without(odd: OddServer, receiver: PushReceiver) -> None:
    """SGLang before 0.5.21 knows no such path, and takes the update alone."""
    del odd.answers[BEGIN], odd.answers[END]
    receiver.take(("AAAA", "BBBB"), version=7)
    assert odd.paths == [PAUSE, BEGIN, TENSOR, RESUME]
    assert dict(odd.asked)[TENSOR]["serialized_named_tensors"] == ["AAAA", "BBBB"]


def test_a_session_that_does_not_open_changes_nothing_and_the_engine_goes_on(
    odd: OddServer, receiver: PushReceiver
) -> None:
    odd.answers[BEGIN] = 400, {"success": False, "message": "a session is open"}
    with pytest.raises(EngineError, match="a session is open"):
        receiver.receive("group", TENSORS, version=7)
    assert odd.paths == [PAUSE, BEGIN, RESUME]


def test_a_push_that_fails_midway_leaves_the_engine_paused(odd: OddServer, receiver: PushReceiver) -> None:
    odd.answers[DISTRIBUTED] = 400, {"success": False, "message": "partially updated"}
    with pytest.raises(EngineError, match=r"half old, half new.*partially updated"):
        receiver.receive("group", TENSORS, version=7)
    assert odd.paths == [PAUSE, BEGIN, DISTRIBUTED, END]


def test_in_place_keeps_the_cache(odd: OddServer) -> None:
    client = EngineClient(odd.url, ModelFacts(vocab=21))
    PushReceiver(client, mode=PauseMode.IN_PLACE).receive("group", TENSORS, version=7)
    asked = dict(odd.asked)
    assert asked[PAUSE] == {"mode": "in_place"} and asked[DISTRIBUTED]["flush_cache"] is False
    client.close()


def test_an_engine_enters_a_group_and_leaves_it(odd: OddServer, receiver: PushReceiver) -> None:
    odd.answers |= {"/init_weights_update_group": FINE, "/destroy_weights_update_group": FINE}
    receiver.join(UpdateGroup(name="g", address="10.0.0.1", port=5, world_size=3, backend="nccl"), rank_offset=1)
    receiver.leave("g")
    (_, joined), (_, left) = odd.asked
    assert joined == {
        "master_address": "10.0.0.1",
        "master_port": 5,
        "rank_offset": 1,
        "world_size": 3,
        "group_name": "g",
        "backend": "nccl",
    }
    assert left == {"group_name": "g"}
