"""Names on a cloud: unique, allowed everywhere, and readable without any store."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.adapters.provisioners.naming import (
    CLUSTER,
    GANG,
    MAX_CLUSTER_CHARS,
    MAX_GANG,
    NODE,
    RUN,
    SLOT,
    cluster_name,
    node_ids,
    own_tags,
    run_label,
    slot_and_attempt,
    tags_of,
)
from hexcloud.domain.fleet import Node, NodeStatus, RunId, node_id
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Role, SlotName

RUNS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}-[0-9]{4}-[0-9]{6}-[0-9a-f]{4}", fullmatch=True).map(RunId)
SLOTS = st.builds(lambda role, number: SlotName(f"{role}-{number}"), st.sampled_from(Role), st.integers(0, 9999))
ATTEMPTS = st.integers(1, 999)
NAMES = st.tuples(RUNS, SLOTS, ATTEMPTS)


def node(run_id: RunId, slot: SlotName, attempt: int = 1, rank: int = 0, gang: int = 1) -> Node:
    return Node(
        id=node_id(run_id, slot, attempt),
        run_id=run_id,
        slot=slot,
        attempt=attempt,
        role=Role.TRAINER if gang > 1 else Role.ROLLOUT,
        offer_id=OfferId("aws/us-east-1/use1-az1/g5.xlarge/spot"),
        status=NodeStatus.REQUESTED,
        requested_at_s=0.0,
        rank=rank,
        gang=gang,
    )


@given(NAMES)
def test_a_cluster_name_is_allowed_by_skypilot_and_every_cloud(name: tuple[RunId, SlotName, int]) -> None:
    cluster = cluster_name(*name)
    assert len(cluster) <= MAX_CLUSTER_CHARS
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", cluster)


@given(NAMES, NAMES)
def test_two_nodes_have_two_clusters(one: tuple[RunId, SlotName, int], two: tuple[RunId, SlotName, int]) -> None:
    assert (cluster_name(*one) == cluster_name(*two)) == (one == two)


def test_names_that_differ_only_in_spelling_are_kept_apart() -> None:
    names = {cluster_name(RunId(run), SlotName("rollout-0"), 1) for run in ("a.b", "a_b", "a-b", "A-b", "a..b")}
    assert len(names) == 5 and "hx-a-b-rollout-0-1" in names


@given(st.lists(SLOTS, min_size=1, max_size=MAX_GANG, unique=True), RUNS, ATTEMPTS)
def test_the_nodes_of_a_launch_are_read_back_from_its_tags(slots: list[SlotName], run: RunId, attempt: int) -> None:
    gang = [node(run, slot, attempt, rank, len(slots)) for rank, slot in enumerate(slots)]
    tags = tags_of(gang, "hx")
    assert set(node_ids(run, tags)) == {one.id for one in gang}
    for one in gang:
        assert node_ids(run, tags | own_tags(one)) == (one.id,)


@given(st.lists(SLOTS, min_size=1, max_size=MAX_GANG, unique=True), RUNS, ATTEMPTS)
def test_every_tag_is_a_label_of_google_cloud(slots: list[SlotName], run: RunId, attempt: int) -> None:
    gang = [node(run, slot, attempt, rank, len(slots)) for rank, slot in enumerate(slots)]
    tags = tags_of(gang, cluster_name(run, slots[0], attempt))
    assert len(tags) <= 50
    for key, value in (tags | own_tags(gang[0])).items():
        assert re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", key) and re.fullmatch(r"[a-z0-9_-]{1,63}", value)


@given(RUNS, RUNS)
def test_two_runs_have_two_tags(one: RunId, two: RunId) -> None:
    assert (run_label(one) == run_label(two)) == (one == two)


def test_a_single_machine_knows_its_node_from_the_start() -> None:
    alone = node(RunId("main-1"), SlotName("rollout-3"), 2)
    assert tags_of([alone], "hx-main-1-rollout-3-2") == {
        RUN: "main-1",
        SLOT: "rollout-3",
        NODE: "rollout-3_2e2",
        GANG: "1",
        CLUSTER: "hx-main-1-rollout-3-2",
    }


def test_tags_of_others_name_no_node() -> None:
    assert node_ids(RunId("main-1"), {"Name": "x", NODE: "somebody-s-own"}) == ()
    assert node_ids(RunId("main-1"), {}) == ()


def test_a_gang_too_large_for_tags_is_refused() -> None:
    run = RunId("main-1")
    gang = [node(run, SlotName(f"trainer-{rank}"), 1, rank, MAX_GANG + 1) for rank in range(MAX_GANG + 1)]
    with pytest.raises(ValueError, match="a gang of 41 machines"):
        tags_of(gang, "hx")
    with pytest.raises(ValueError, match="too long for a tag"):
        tags_of([node(run, SlotName("x" * 64))], "hx")


@given(NAMES)
def test_a_node_s_id_is_taken_apart_as_it_was_put_together(name: tuple[RunId, SlotName, int]) -> None:
    assert slot_and_attempt(node_id(*name)) == name
