import asyncio
from collections.abc import Awaitable, Callable

from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.fleet import NodeId
from hexcloud.domain.generation import FinishKind, Generation
from hexcloud.domain.lease import GroupId, Lease, LeaseId
from hexcloud.domain.messages import Admit, LeaseRequest, Partial, Register
from hexcloud.domain.plan import Role
from hexcloud.domain.sample import Sample
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.coordinator_app import serving
from hexcloud.runtime.rollout_link import CoordinatorLink, FindPointer
from hexcloud.runtime.rollout_outbox import MAX_PER_CALL, Outbox, fitting
from hexcloud.runtime.rollout_work import partial, sample
from hexcloud.runtime.tasks import EOS_ID

Story = Callable[[Coordinator, CoordinatorLink], Awaitable[None]]
Publish = Callable[[Coordinator, int], None]
NODE = NodeId("run.rollout.0")


async def leases_of(link: CoordinatorLink, want: int) -> tuple[Lease, ...]:
    await link.register(Register(node_id=NODE, role=Role.ROLLOUT, slots=16, address="127.0.0.1:1"))
    return (await link.leases(LeaseRequest(node_id=NODE, epoch=0, version=0, want=want))).leases


def generation(finish: FinishKind) -> Generation:
    return Generation(rid="x", tokens=(3, EOS_ID), logprobs=(-0.1, -0.2), versions=(0, 0), finish=finish)


async def delivered(outbox: Outbox) -> None:
    delivering = asyncio.create_task(outbox.deliver())
    async with asyncio.timeout(60):
        await outbox.emptied()
    delivering.cancel()


def test_samples_and_partials_end_their_leases(tell_rollout: Callable[[Story], None], publish: Publish) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        leases = await leases_of(link, want=8)
        outbox = Outbox(NODE, link)
        outbox.add(
            [sample(lease, generation(FinishKind.STOP), 1.0) for lease in leases[:5]],
            [partial(lease, generation(FinishKind.ABORT)) for lease in leases[5:]],
        )
        assert len(outbox.keys()) == 8
        await delivered(outbox)
        assert outbox.keys() == []
        # What was given back waits, with its tokens, for whoever asks next.
        again = await leases_of(link, want=3)
        assert [(lease.attempt, lease.prefix) for lease in again] == [(1, (3, EOS_ID))] * 3

    tell_rollout(story)


def test_what_is_refused_for_good_does_not_block_the_rest(
    tell_rollout: Callable[[Story], None], publish: Publish
) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        leases = await leases_of(link, want=4)
        outbox = Outbox(NodeId("somebody.else.0"), link)
        outbox.add([sample(leases[0], generation(FinishKind.STOP), 1.0)], [partial(leases[1])])
        await delivered(outbox)
        assert outbox.keys() == []

    tell_rollout(story)


def test_delivery_waits_for_a_coordinator_that_comes_back_elsewhere(
    make_coordinator: Callable[[], Coordinator], publish: Publish, find_pointer: FindPointer
) -> None:
    async def scene() -> None:
        coordinator = make_coordinator()
        publish(coordinator, 0)
        async with CoordinatorLink(find_pointer, "node-token") as link:
            async with serving(coordinator, "run-secret"):
                leases = await leases_of(link, want=4)
            outbox = Outbox(NODE, link)
            outbox.add([sample(lease, generation(FinishKind.STOP), 1.0) for lease in leases], [])
            delivering = asyncio.create_task(outbox.deliver())
            await asyncio.sleep(0.1)
            assert len(outbox.keys()) == 4
            async with serving(coordinator, "run-secret"), asyncio.timeout(60):
                await outbox.emptied()
            delivering.cancel()

    asyncio.run(scene())


def test_a_revoked_node_keeps_what_it_cannot_deliver(tell_rollout: Callable[[Story], None], publish: Publish) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        leases = await leases_of(link, want=4)
        coordinator.admit(Admit(node_id=NodeId("other"), token_sha256="0" * 64, revoke=(NODE,)))
        outbox = Outbox(NODE, link)
        outbox.add([], [partial(lease) for lease in leases])
        delivering = asyncio.create_task(outbox.deliver())
        await asyncio.sleep(0.2)
        assert not delivering.done()
        assert len(outbox.keys()) == 4
        delivering.cancel()

    tell_rollout(story)


@given(st.lists(st.integers(0, 9), max_size=MAX_PER_CALL + 9), st.integers(0, 60))
def test_what_leaves_in_one_call_is_bounded_and_never_nothing(lengths: list[int], max_tokens: int) -> None:
    made = [
        Partial(lease=LeaseId(str(index)), attempt=0, tokens=(7,) * length, logprobs=(), versions=())
        for index, length in enumerate(lengths)
    ]
    left, calls = made, []
    while left:
        calls.append(fitting(left, max_tokens))
        left = left[len(calls[-1]) :]
    assert [one for call in calls for one in call] == made
    for call in calls:
        assert 1 <= len(call) <= MAX_PER_CALL
        assert len(call) == 1 or sum(len(one.tokens) for one in call) <= max_tokens


def test_prompts_count_to_what_fits_into_one_call() -> None:
    made = [
        Sample(
            lease=LeaseId(str(place)), attempt=0, group=GroupId(0), index=place, epoch=0, prompt_ids=(1,) * 50,
            tokens=(7,), logprobs=(-0.1,), versions=(0,), reward=0.0,
        )
        for place in range(4)
    ]  # fmt: skip
    assert len(fitting(made, max_tokens=102)) == 2
