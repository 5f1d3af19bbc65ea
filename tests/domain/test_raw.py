import math
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexcloud.domain.fleet import NodeId
from hexcloud.domain.lease import GroupId, LeaseId
from hexcloud.domain.messages import Batch, Submission
from hexcloud.domain.raw import SealedSample, opened, pack_batch, pack_submission, parse_batch, parse_submission
from hexcloud.domain.sample import Group, Sample
from hexcloud.domain.world import World

NUMBER = st.integers(-(2**31), 2**31 - 1)
LOGPROB = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    length = draw(st.integers(1, 8))
    some = [draw(st.lists(kind, min_size=length, max_size=length)) for kind in (NUMBER, LOGPROB, NUMBER)]
    return Sample(
        lease=LeaseId(draw(st.text(max_size=5))),
        attempt=draw(st.integers(0, 9)),
        group=GroupId(draw(st.integers(0, 99))),
        index=draw(st.integers(0, 7)),
        epoch=draw(st.integers(0, 3)),
        prompt_ids=tuple(draw(st.lists(NUMBER, max_size=4))),
        tokens=tuple(some[0]),
        logprobs=tuple(some[1]),
        versions=tuple(some[2]),
        reward=draw(st.floats(-1, 1)),
    )


@settings(deadline=None)
@given(made=st.lists(samples(), max_size=4), node=st.text(max_size=5))
def test_a_submission_arrives_as_it_was_sent(made: list[Sample], node: str) -> None:
    message = Submission(node_id=NodeId(node), samples=tuple(made))
    found = parse_submission(pack_submission(message))
    assert found.node_id == message.node_id
    assert [one.opened() for one in found.samples if isinstance(one, SealedSample)] == made
    assert [(one.oldest_version, one.newest_version) for one in found.samples] == [
        (min(one.versions), max(one.versions)) for one in made
    ]
    assert [(one.tokens, one.logprobs, one.versions) for one in found.samples] == [
        (one.tokens, one.logprobs, one.versions) for one in made
    ]


@settings(deadline=None)
@given(made=st.lists(st.lists(samples(), max_size=3), max_size=3), flags=st.tuples(*[st.booleans()] * 3))
def test_a_batch_arrives_as_it_was_sent(made: list[list[Sample]], flags: tuple[bool, bool, bool]) -> None:
    groups = tuple(Group(id=GroupId(place), samples=tuple(some)) for place, some in enumerate(made))
    world = World(generation=2, nodes=(NodeId("a"), NodeId("b")), store="h:1")
    message = Batch(
        version=3, groups=groups, cursor=7, done=flags[0], checkpoint=flags[1], rewrite=flags[2], world=world
    )
    assert parse_batch(pack_batch(message)) == message
    sealed = tuple(
        Group(
            id=group.id,
            samples=parse_submission(pack_submission(Submission(node_id=NodeId(""), samples=group.samples))).samples,
        )
        for group in groups
    )
    came = message.model_copy(update={"groups": sealed})
    assert pack_batch(came) == pack_batch(message)
    assert opened(came) == message


@settings(deadline=None)
@given(data=st.data(), made=st.lists(samples(), min_size=1, max_size=2))
def test_damaged_bytes_are_refused_or_another_valid_submission(data: st.DataObject, made: list[Sample]) -> None:
    body = bytearray(pack_submission(Submission(node_id=NodeId("n"), samples=tuple(made))))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    for damaged in (bytes(body), bytes(body[: data.draw(st.integers(0, len(body) - 1))]), bytes(body) + b"more"):
        try:
            found = parse_submission(damaged)
        except ValueError:
            continue
        for one in found.samples:
            assert len(one.tokens) == len(one.logprobs) == len(one.versions) > 0
            assert all(map(math.isfinite, one.logprobs))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_logprob_that_is_not_finite_is_refused(bad: float) -> None:
    sample = Sample(
        lease=LeaseId("1.0"), attempt=0, group=GroupId(1), index=0, epoch=0, prompt_ids=(1,),
        tokens=(5, 6), logprobs=(-0.5, -1.5), versions=(0, 0), reward=0.0,
    )  # fmt: skip
    body = pack_submission(Submission(node_id=NodeId("n"), samples=(sample,)))
    spoilt = body.replace(array("f", [-1.5]).tobytes(), array("f", [bad]).tobytes())
    with pytest.raises(ValueError, match="not finite"):
        parse_submission(spoilt)
