import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hexcloud.adapters.certificates import RunAuthority, server_context
from hexcloud.domain.fleet import NodeId, RunId
from hexcloud.domain.lease import LeaseId
from hexcloud.domain.messages import Admit, Heartbeat, Partial, PartialCommit, Register, WeightsManifest
from hexcloud.domain.plan import Role
from hexcloud.domain.pointer import sign_pointer
from hexcloud.runtime import rollout_link
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.coordinator_app import serving
from hexcloud.runtime.coordinator_door import Door
from hexcloud.runtime.rollout_link import CoordinatorLink, FindPointer, RefusedError, RevokedError, UnreachableError

Story = Callable[[Coordinator, CoordinatorLink], Awaitable[None]]
Tell = Callable[[Story], None]
Publish = Callable[[Coordinator, int], None]


def register(node_id: str = "run.rollout.0") -> Register:
    return Register(node_id=NodeId(node_id), role=Role.ROLLOUT, slots=16, address="127.0.0.1:1")


def test_a_node_registers_and_hears_its_orders(tell_rollout: Tell, publish: Publish) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        orders = await link.register(register())
        assert orders.latest is not None
        assert orders.run_until_s == coordinator.run_until_s

    tell_rollout(story)


def test_a_revoked_node_is_told_apart_from_a_dead_line(tell_rollout: Tell) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        await link.register(register())
        coordinator.admit(Admit(node_id=NodeId("other"), token_sha256="0" * 64, revoke=(NodeId("run.rollout.0"),)))
        with pytest.raises(RevokedError):
            await link.register(register())

    tell_rollout(story)


def test_a_node_that_has_not_registered_may_try_again(tell_rollout: Tell) -> None:
    async def story(_coordinator: Coordinator, link: CoordinatorLink) -> None:
        beat = Heartbeat(node_id=NodeId("run.rollout.0"), epoch=0, version=-1, running=0, generated_tokens=0)
        with pytest.raises(UnreachableError):
            await link.heartbeat(beat)

    tell_rollout(story)


def test_words_about_another_node_are_refused_for_good(tell_rollout: Tell) -> None:
    async def story(_coordinator: Coordinator, link: CoordinatorLink) -> None:
        with pytest.raises(RefusedError):
            await link.register(register("run.rollout.9"))
        with pytest.raises(RefusedError):
            await link.commit(PartialCommit(node_id=NodeId("run.rollout.9"), partials=()))

    tell_rollout(story)


def test_a_message_that_the_coordinator_would_not_read_is_refused_and_the_line_stays(
    tell_rollout: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(_coordinator: Coordinator, link: CoordinatorLink) -> None:
        await link.register(register())
        pointer = link._pointer
        monkeypatch.setattr(rollout_link, "MAX_BODY", 100)
        parts = tuple(
            Partial(lease=LeaseId(str(place)), attempt=0, tokens=(), logprobs=(), versions=()) for place in range(9)
        )
        with pytest.raises(RefusedError, match="413"):
            await link.commit(PartialCommit(node_id=NodeId("run.rollout.0"), partials=parts))
        assert link._pointer is pointer is not None

    tell_rollout(story)


@pytest.mark.parametrize("offset", [0, 777])
def test_weights_stream_from_any_offset(tell_rollout: Tell, publish: Publish, tmp_path: Path, offset: int) -> None:
    async def story(coordinator: Coordinator, link: CoordinatorLink) -> None:
        publish(coordinator, 0)
        manifest = (await link.register(register())).latest
        assert manifest is not None
        got = b"".join([piece async for piece in link.weights(manifest, offset)])
        content = (tmp_path / "0.safetensors").read_bytes()
        assert got == content[offset:]
        assert manifest.sha256 == hashlib.sha256(content).hexdigest()

    tell_rollout(story)


def test_weights_that_are_not_served_are_refused(tell_rollout: Tell) -> None:
    async def story(_coordinator: Coordinator, link: CoordinatorLink) -> None:
        gone = WeightsManifest(epoch=3, version=1, sha256="0" * 64, size=1)
        with pytest.raises(RefusedError):
            await anext(link.weights(gone, 0))

    tell_rollout(story)


def test_a_moved_coordinator_is_found_after_one_failed_call(
    make_coordinator: Callable[[], Coordinator], find_pointer: FindPointer
) -> None:
    async def scene() -> None:
        async with CoordinatorLink(find_pointer, "node-token") as link:
            with pytest.raises(UnreachableError, match="no pointer"):
                await link.url()
            async with serving(make_coordinator(), "run-secret") as first:
                await link.register(register())
                assert await link.url() == first
            async with serving(make_coordinator(), "run-secret") as second:
                with pytest.raises(UnreachableError):
                    await link.register(register())
                await link.register(register())
                assert await link.url() == second

    asyncio.run(scene())


def test_a_pointer_that_somebody_else_signed_is_not_followed(
    make_coordinator: Callable[[], Coordinator], find_pointer: FindPointer
) -> None:
    async def scene() -> None:
        link = CoordinatorLink(find_pointer, "node-token")
        async with link, serving(make_coordinator(), "another-secret"):
            with pytest.raises(UnreachableError, match="not signed"):
                await link.register(register())

    asyncio.run(scene())


AUTHORITY = RunAuthority(b"k" * 32, 1_790_000_000.0)
HEAD = NodeId("run.trainer.0")


def tls_door() -> Door:
    return Door(tls=server_context(AUTHORITY.certificate(HEAD), AUTHORITY.private_key(HEAD)))


def test_a_node_speaks_to_a_head_that_its_run_vouches_for(
    make_coordinator: Callable[[], Coordinator], find_pointer: FindPointer, publish: Publish
) -> None:
    async def scene() -> None:
        coordinator = make_coordinator()
        link = CoordinatorLink(find_pointer, "node-token", AUTHORITY.ca_pem)
        async with link, serving(coordinator, "run-secret", tls_door()):
            publish(coordinator, 0)
            manifest = (await link.register(register())).latest
            assert manifest is not None
            assert (await link.url()).startswith("https://")
            got = b"".join([piece async for piece in link.weights(manifest, 0)])
            assert hashlib.sha256(got).hexdigest() == manifest.sha256

    asyncio.run(scene())


@pytest.mark.parametrize("ca_pem", [RunAuthority(b"x" * 32, 1_790_000_000.0).ca_pem, ""], ids=["another", "none"])
def test_a_node_tells_its_token_to_no_head_of_another_run(
    make_coordinator: Callable[[], Coordinator], find_pointer: FindPointer, ca_pem: str
) -> None:
    async def scene() -> None:
        coordinator = make_coordinator()
        link = CoordinatorLink(find_pointer, "node-token", ca_pem)
        async with link, serving(coordinator, "run-secret", tls_door()):
            with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
                await link.register(register())
        assert coordinator.view().nodes == ()

    asyncio.run(scene())


def test_a_node_tells_its_token_to_nobody_beyond_this_machine_without_tls() -> None:
    async def scene() -> None:
        pointer = sign_pointer(RunId("run"), "http://192.0.2.1:8477", 0, "run-secret")
        async with CoordinatorLink(lambda: pointer, "node-token", AUTHORITY.ca_pem) as link:
            with pytest.raises(UnreachableError, match="no token is sent there"):
                await link.register(register())

    asyncio.run(scene())
