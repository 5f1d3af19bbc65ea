"""Whatever a node says that the door lets in: the run's view can be read, and time goes on."""

import asyncio
import copy
import json
import math
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import Admit, Heartbeat, RunView
from hexcloud.domain.plan import Role
from hexcloud.runtime.coordinator_access import token_sha256
from hexcloud.runtime.coordinator_app import create_app
from tests.runtime.coordinator_desk import HEAD, A, Desk

Call = tuple[str, dict[str, Any]]

BEAT = {
    "node_id": A,
    "epoch": 0,
    "version": 0,
    "running": 1,
    "generated_tokens": 5,
    "leases": [["0.0", 0]],
    "is_paused": False,
    "notice": {"cause": "rebalance recommendation", "until_s": 1e9, "detail": ""},
}
TOKENS = {"tokens": [7, 2], "logprobs": [-0.1, -0.2], "versions": [0, 0]}
SAMPLE = {"lease": "0.0", "attempt": 0, "group": 0, "index": 0, "epoch": 0, "prompt_ids": [1, 0], "reward": 0.0}
CALLS: tuple[Call, ...] = (
    (
        "/register",
        {
            "node_id": A,
            "role": "rollout",
            "slots": 8,
            "address": "a:1",
            "startup": {"setup_s": 1.0, "program_s": 1.0},
            "region": "aws/us-east-1",
            "relay": {"address": "a:2", "certificate": ""},
        },
    ),
    ("/heartbeat", BEAT),
    ("/leases", {"node_id": A, "epoch": 0, "version": 0, "want": 2}),
    ("/samples", {"node_id": A, "samples": [SAMPLE | TOKENS]}),
    ("/partials", {"node_id": A, "partials": [{"lease": "0.1", "attempt": 0, "start": 0} | TOKENS], "released": False}),
    ("/leases/renew", {"node_id": A, "leases": [["0.0", 0]]}),
    ("/links", {"node_id": A, "target": f"{HEAD}:1", "gb_per_s": 1.0, "latency_ms": 1.0}),
    ("/places/trouble", {"node_id": A, "sha256": "0" * 64, "reason": "HTTP 404"}),
)
ODD: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 10**400, -(10**400), 2**63, 2**53, 10**30]),
    st.sampled_from([None, True, "", "\ud800", "\x00", "a" * 20_000, [], {}]),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
)


def leaves(body: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where in a body something may be put in the place of what is there."""
    inner = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    return [above] * bool(above) + [path for key, value in inner for path in leaves(value, (*above, key))]


def with_odd(call: Call, place: tuple[Any, ...], value: Any) -> Call:
    body: Any = copy.deepcopy(call[1])
    inside = body
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    return call[0], body


@st.composite
def said(draw: st.DrawFn) -> Call:
    call = draw(st.sampled_from(CALLS))
    return with_odd(call, draw(st.sampled_from(leaves(call[1]))), draw(ODD))


async def through_the_door(desk: Desk, calls: list[Call]) -> list[int]:
    """Make a node's calls, a second apart and with a tick after each; what fails in there is raised."""
    transport = httpx.ASGITransport(create_app(desk.coordinator))
    async with httpx.AsyncClient(transport=transport, base_url="http://coordinator") as client:
        answers = []
        for path, body in calls:
            headers = {"Authorization": "Bearer a"}
            answer = await client.post(path, content=json.dumps(body), headers=headers)
            answers.append(answer.status_code)
            desk.now_s += 1.0
            desk.coordinator.tick()
            status = await client.get("/status", headers={"Authorization": "Bearer controller"})
            view = RunView.model_validate_json(status.content)
            assert all("cannot be worked with" not in node.trouble for node in view.nodes), "caught, and let in"
        return answers


def desk_at_work(run_dir: Path) -> Desk:
    """Give a coordinator of which the node holds leases and has spoken."""
    desk = Desk(run_dir)
    desk.coordinator.admit(Admit(node_id=A, token_sha256=token_sha256("a")))
    desk.publish(0)
    desk.register(HEAD, Role.TRAINER)
    desk.register()
    desk.ask(2)
    desk.beat()
    return desk


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@settings(max_examples=100, deadline=None)
@given(calls=st.lists(said(), min_size=1, max_size=3))
@example(calls=[with_odd(CALLS[5], ("gb_per_s",), math.nan)])
@example(calls=[with_odd(CALLS[1], ("notice", "until_s"), math.inf)])
@example(calls=[with_odd(CALLS[0], ("startup", "setup_s"), math.nan)])
@example(calls=[with_odd(CALLS[1], ("generated_tokens",), 10**400)])
def test_whatever_the_door_lets_in_the_view_is_read_and_the_tick_survives(calls: list[Call], run_dir: Path) -> None:
    answers = asyncio.run(through_the_door(desk_at_work(run_dir), calls))
    assert all(answer < HTTPStatus.INTERNAL_SERVER_ERROR for answer in answers)


def test_what_nobody_has_said_oddly_is_let_in(run_dir: Path) -> None:
    answers = asyncio.run(through_the_door(desk_at_work(run_dir), list(CALLS)))
    assert all(answer < HTTPStatus.MULTIPLE_CHOICES for answer in answers)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("slots",), -4),
        (("slots",), 10**30),
        (("startup", "setup_s"), -1.0),
        (("address",), "a" * 20_000),
    ],
)
def test_a_node_that_registers_as_what_there_is_not_is_refused(
    place: tuple[str, ...], value: object, run_dir: Path
) -> None:
    told = [with_odd(CALLS[0], place, value)]
    assert asyncio.run(through_the_door(desk_at_work(run_dir), told)) == [HTTPStatus.UNPROCESSABLE_ENTITY]


def unforeseen(node_id: NodeId) -> Heartbeat:
    return Heartbeat.model_construct(node_id=node_id, epoch=0, version=0, running=0, generated_tokens=10**400)


def test_words_of_one_worker_that_nobody_foresaw_end_its_work_and_not_the_run(run_dir: Path) -> None:
    desk = desk_at_work(run_dir)
    desk.now_s += 1.0
    desk.coordinator.heartbeat(unforeseen(A))
    desk.coordinator.tick()
    broken = {node.node_id: node.trouble for node in desk.coordinator.view().nodes if node.trouble}
    assert set(broken) == {A} and "OverflowError" in broken[A]
    assert not desk.ask(2).leases
    desk.coordinator.heartbeat(unforeseen(A))
    assert HEAD in {node.node_id for node in desk.coordinator.view().nodes}


def test_what_nobody_foresaw_of_the_trainer_is_the_runs_own_trouble(run_dir: Path) -> None:
    desk = desk_at_work(run_dir)
    desk.beat(HEAD)
    desk.now_s += 1.0
    desk.coordinator.heartbeat(unforeseen(HEAD))
    with pytest.raises(OverflowError):
        desk.coordinator.view()
