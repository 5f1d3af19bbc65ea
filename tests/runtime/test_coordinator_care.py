from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hexcloud.domain.messages import INTERRUPTION, DrainRequest, Heartbeat, Notice, Partial, PartialCommit, Renewal
from hexcloud.runtime.coordinator_nodes import MAX_STRIKES
from tests.runtime.coordinator_desk import A, B, Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.publish(0)
    desk.register()
    return desk


def test_a_worker_that_speaks_and_delivers_nothing_is_named_and_gets_no_more_work(desk: Desk) -> None:
    desk.register(B)
    with capture_logs() as logs:
        for _ in range(MAX_STRIKES):
            assert desk.ask(2).leases
            for _ in range(61):
                desk.now_s += 1.0
                desk.beat(A)
                desk.beat(B)
                desk.coordinator.tick()
                desk.coordinator.renew(Renewal(run_until_s=desk.now_s + 60.0))
    broken = [entry for entry in logs if entry["event"] == "worker_broken"]
    assert [(entry["node"], entry["reason"]) for entry in broken] == [(A, desk.coordinator.view().nodes[0].trouble)]
    assert "nothing came of its leases within 60 s" in broken[0]["reason"]
    assert not desk.ask(2).leases
    assert len(desk.ask(2, node_id=B).leases) == 2, "others make what it did not"


def test_a_worker_whose_samples_are_refused_again_and_again_is_named(desk: Desk) -> None:
    for _ in range(MAX_STRIKES):
        (lease,) = desk.ask(1).leases
        desk.submit((lease.model_copy(update={"prompt_ids": (9,)}),))
        desk.now_s += 40.0
    assert "contradict" in desk.coordinator.view().nodes[0].trouble


def give_back(desk: Desk, tokens: int = 0) -> None:
    """What a worker does whose engine has failed a batch, with what there is of it."""
    leases = desk.ask(2).leases
    assert leases
    parts = tuple(
        Partial(
            lease=lease.id,
            attempt=lease.attempt,
            tokens=lease.prefix + (7,) * tokens,
            logprobs=lease.prefix_logprobs + (-0.1,) * tokens,
            versions=lease.prefix_versions + (0,) * tokens,
        )
        for lease in leases
    )
    desk.coordinator.commit(PartialCommit(node_id=A, partials=parts, released=True))


def test_a_worker_whose_engine_always_fails_is_named_within_two_minutes(desk: Desk) -> None:
    desk.submit(desk.ask(1).leases)  # it was good once
    begun_s = desk.now_s
    while not desk.coordinator.view().nodes[0].trouble:
        give_back(desk)
        desk.now_s += 0.5
        desk.beat(A)
    assert desk.now_s - begun_s <= 121.0
    assert "without a token" in desk.coordinator.view().nodes[0].trouble
    assert not desk.ask(2).leases
    desk.register(B)
    assert desk.ask(2, node_id=B).leases


def test_a_worker_that_gives_back_what_it_has_begun_is_not_named(desk: Desk) -> None:
    for turn in range(12):
        give_back(desk, tokens=turn % 2)
        desk.now_s += 30.0
    assert not desk.coordinator.view().nodes[0].trouble


@pytest.mark.parametrize("why", ["drain", "notice"])
def test_a_worker_that_leaves_may_give_everything_back(desk: Desk, why: str) -> None:
    for _ in range(2 * MAX_STRIKES):
        leases = desk.ask(1).leases
        if why == "drain":
            desk.coordinator.drain(DrainRequest(node_id=A))
        else:
            notice = Notice(cause=INTERRUPTION, until_s=desk.now_s + 120.0)
            desk.coordinator.heartbeat(
                Heartbeat(node_id=A, epoch=0, version=0, running=0, generated_tokens=0, notice=notice)
            )
        parts = tuple(Partial(lease=one.id, attempt=one.attempt, tokens=(), logprobs=(), versions=()) for one in leases)
        desk.coordinator.commit(PartialCommit(node_id=A, partials=parts, released=True))
        desk.now_s += 40.0
    assert not desk.coordinator.view().nodes[0].trouble


def test_a_worker_whose_commits_are_refused_again_and_again_is_named(desk: Desk) -> None:
    for _ in range(MAX_STRIKES):
        (lease,) = desk.ask(1).leases
        part = Partial(lease=lease.id, attempt=lease.attempt, tokens=(10**6,), logprobs=(-1.0,), versions=(0,))
        desk.coordinator.commit(PartialCommit(node_id=A, partials=(part,)))
        assert desk.beat(held=(lease,)).abort == (lease.id,)
        desk.now_s += 40.0
    assert "contradict" in desk.coordinator.view().nodes[0].trouble
    desk.register(B)
    assert desk.ask(1, node_id=B).leases[0].prefix == ()


def test_one_good_sample_forgives_a_worker(desk: Desk) -> None:
    for _ in range(2 * MAX_STRIKES):
        first, second = desk.ask(2, version=desk.coordinator.view().version).leases
        desk.submit((first.model_copy(update={"prompt_ids": (9,)}),))
        desk.now_s += 40.0
        desk.submit((second,))
        if desk.batch().groups:
            desk.publish(desk.batch().version + 1)
    assert not desk.coordinator.view().nodes[0].trouble
