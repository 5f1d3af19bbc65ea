import math
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from hexcloud.domain.fleet import NodeId
from hexcloud.domain.lease import GroupId, LeaseId
from hexcloud.domain.messages import Batch, Partial, PartialCommit, Submission
from hexcloud.domain.raw import (
    SealedSample,
    opened,
    pack_batch,
    pack_commit,
    pack_submission,
    parse_batch,
    parse_commit,
    parse_submission,
)
from hexcloud.domain.response import LEAST_LOGPROB, MOST_LOGPROB, Response
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
@given(st.lists(st.tuples(samples(), st.integers(0, 9), st.integers(0, 8)), max_size=4), st.booleans())
def test_a_commit_arrives_as_it_was_sent(made: list[tuple[Sample, int, int]], released: bool) -> None:
    partials = tuple(
        Partial(
            lease=one.lease,
            attempt=one.attempt,
            start=start,
            tokens=one.tokens[:cut],
            logprobs=one.logprobs[:cut],
            versions=one.versions[:cut],
        )
        for one, start, cut in made
    )
    message = PartialCommit(node_id=NodeId("n"), partials=partials, released=released)
    found = parse_commit(pack_commit(message))
    assert (found.node_id, found.released) == ("n", released)
    assert [one.made.opened() for one in found.partials] == [one.made for one in partials]
    assert [(one.lease, one.attempt, one.start, one.tokens, one.logprobs, one.versions) for one in found.partials] == [
        (one.lease, one.attempt, one.start, one.tokens, one.logprobs, one.versions) for one in partials
    ]
    assert pack_commit(found) == pack_commit(message)


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


VOCABULARY = 50_000
Number = TypeVar("Number", int, float)
ANY_LOGPROB = st.one_of(
    st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, LEAST_LOGPROB, MOST_LOGPROB]),
    st.floats(width=32),
    st.floats(-20.0, 0.0, width=32),
)


@settings(deadline=None)
@given(data=st.data())
def test_sealed_numbers_are_believed_exactly_when_open_ones_are(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 6))
    ids = st.one_of(st.integers(0, VOCABULARY), st.sampled_from([-1, VOCABULARY - 1, 2**31 - 1, -(2**31)]), NUMBER)

    def drawn(kind: st.SearchStrategy[Number]) -> tuple[Number, ...]:
        return tuple(data.draw(st.lists(kind, min_size=length, max_size=length)))

    sample = Sample.model_construct(
        lease=LeaseId("1.0"), attempt=0, group=GroupId(1), index=0, epoch=0, prompt_ids=(1,), reward=0.0,
        tokens=drawn(ids), logprobs=drawn(ANY_LOGPROB), versions=drawn(st.integers(0, 2)),
    )  # fmt: skip
    (sealed,) = parse_submission(pack_submission(Submission(node_id=NodeId("n"), samples=(sample,)))).samples
    assert isinstance(sealed, SealedSample)
    assert sealed.has_ids_below(VOCABULARY) == sample.has_ids_below(VOCABULARY)
    assert sealed.has_sound_logprobs == sample.has_sound_logprobs
    if not sample.has_sound_logprobs:
        return
    whole = Response(sample.tokens, sample.logprobs, sample.versions)
    longer = Response((*whole.tokens, 0), (*whole.logprobs, 0.0), (*whole.versions, 0))
    cut = data.draw(st.integers(0, length))
    begun = Response(whole.tokens[:cut], whole.logprobs[:cut], whole.versions[:cut])
    assert sealed.continues(begun) and sample.continues(begun)
    assert not sealed.continues(longer)
    other = begun._replace(versions=tuple(version + 1 for version in begun.versions))
    assert sealed.continues(other) == sample.continues(other)
