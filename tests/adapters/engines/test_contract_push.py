"""Weights pushed into the real server, over gloo: from the trainer's memory, while requests are in flight."""

from collections.abc import Iterator

import pytest
import torch

from hexcloud.adapters.engines.receiver import PushReceiver
from hexcloud.domain.errors import EngineError
from hexcloud.runtime.weights_push import WeightsGroup, push_tensors
from tests.adapters.engines.contract import LONG, SGLANG, Answer, Subject, ask

# The embedded engine takes weights from disk only.
pytestmark = pytest.mark.parametrize("stage", [SGLANG], indirect=True)


@pytest.fixture
def pushed(subject: Subject) -> PushReceiver:
    return PushReceiver(subject.client)


@pytest.fixture
def group(pushed: PushReceiver) -> Iterator[WeightsGroup]:
    group = WeightsGroup([pushed], "gloo")
    yield group
    group.close()


def state(subject: Subject, version: int) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in subject.theirs[version].state_dict().items() if name != "lm_head.weight"}


def test_a_broadcast_in_flight_splits_the_versions_and_both_parts_are_true(
    subject: Subject, group: WeightsGroup, flying: Answer
) -> None:
    group.push(state(subject, 2), version=2)
    subject.slow_down(0)
    (made,) = flying.result(timeout=30)
    assert len(made.tokens) == LONG and set(made.versions) == {1, 2}
    subject.assert_true((1, 5, 6), made)


def test_a_group_serves_for_many_versions(subject: Subject, group: WeightsGroup) -> None:
    for version in (2, 1, 2):
        group.push(state(subject, version), version)
        (made,) = subject.client.generate((ask(f"v{version}"),))
        assert subject.client.info().version == version and set(made.versions) == {version}
        subject.assert_true((1, 5, 6), made)


def test_tensors_handed_over_are_served(subject: Subject, pushed: PushReceiver, flying: Answer) -> None:
    push_tensors(pushed, state(subject, 2), version=2)
    subject.slow_down(0)
    (made,) = flying.result(timeout=30)
    assert set(made.versions) == {1, 2}
    subject.assert_true((1, 5, 6), made)


def test_a_push_into_no_group_is_refused_and_the_engine_waits_for_whole_weights(
    subject: Subject, pushed: PushReceiver
) -> None:
    with pytest.raises(EngineError, match="half old, half new"):
        pushed.receive("no-such-group", (), version=9)
    assert not subject.client.is_ready()
    push_tensors(pushed, state(subject, 1), version=1)
    assert subject.client.is_ready()
    (made,) = subject.client.generate((ask("after"),))
    subject.assert_true((1, 5, 6), made)
