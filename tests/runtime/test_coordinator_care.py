from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hexcloud.domain.messages import Renewal
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


def test_one_good_sample_forgives_a_worker(desk: Desk) -> None:
    for _ in range(2 * MAX_STRIKES):
        first, second = desk.ask(2, version=desk.coordinator.view().version).leases
        desk.submit((first.model_copy(update={"prompt_ids": (9,)}),))
        desk.now_s += 40.0
        desk.submit((second,))
        if desk.batch().groups:
            desk.publish(desk.batch().version + 1)
    assert not desk.coordinator.view().nodes[0].trouble
