import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from hexcloud.adapters.objects import Bucket
from hexcloud.adapters.stored_folder import upload_folder
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.fleet import RunId
from hexcloud.domain.messages import RunPhase
from hexcloud.domain.plan import Role
from hexcloud.domain.pointer import sign_pointer
from hexcloud.domain.stored import head_object
from hexcloud.node.identity import Identity
from hexcloud.node.stored_run import claim_run
from hexcloud.node.trainer import start_of
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.coordinator_access import AccessList
from hexcloud.runtime.tasks import TASKS
from tests.node.conftest import MakeSpec
from tests.node.switched_bucket import SwitchedBucket
from tests.node.test_restore import made

POINTER = sign_pointer(RunId("run"), "https://192.0.2.1:8477", 0, "secret")


@pytest.fixture
def identity(make_spec: MakeSpec, tmp_path: Path) -> Identity:
    """A head whose store is a folder."""
    update = {"store": f"file://{tmp_path}/store", "run_dir": str(tmp_path / "run")}
    (tmp_path / "run").mkdir()
    spec = make_spec(Role.TRAINER).model_copy(update=update)
    return Identity(spec=spec, token="head-token", run_secret="secret", controller_token="controller-token")


def coordinator_of(identity: Identity) -> Coordinator:
    spec = identity.spec
    return Coordinator(spec, TASKS[spec.task.name], AccessList("controller-token", {}), start_of(identity.run_dir))


async def until(is_reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_reached():  # noqa: ASYNC110 - there is no event for what a test waits for
            await asyncio.sleep(0.01)


def test_a_run_of_a_common_folder_needs_none_of_this(make_spec: MakeSpec) -> None:
    identity = Identity(make_spec(Role.TRAINER), token="t", run_secret="s", controller_token="c")
    assert asyncio.run(claim_run(identity)) is None


def test_a_store_that_is_none_is_refused_at_once(identity: Identity) -> None:
    spec = identity.spec.model_copy(update={"store": "nonsense"})
    wrong = Identity(spec, token="t", run_secret="s", controller_token="c")
    with pytest.raises(ConfigError, match="a store is s3://"):
        asyncio.run(claim_run(wrong))


def test_what_a_head_has_is_in_the_store_before_the_run_counts_as_done(identity: Identity, tmp_path: Path) -> None:
    async def scene() -> None:
        stored = await claim_run(identity)
        assert stored is not None
        coordinator = coordinator_of(identity)
        stored.begin(coordinator, lambda: None)
        stored.point(POINTER)
        made(identity.run_dir, 0, 20)
        assert await stored.catch_up(within_s=60.0)
        await until(lambda: coordinator.view().checkpoint_version == 20)
        (tmp_path / "output").mkdir()
        (tmp_path / "output" / "model.safetensors").write_bytes(b"weights")
        coordinator.finish()
        assert coordinator.view().phase is not RunPhase.DONE
        await stored.deliver(coordinator)
        assert coordinator.view().phase is RunPhase.DONE
        stored.close()

    asyncio.run(scene())
    bucket = SwitchedBucket(tmp_path / "store")
    assert bucket.get("coordinator.json") == POINTER.model_dump_json().encode()
    assert bucket.get("output/model.safetensors") == b"weights" and bucket.get("output.json") is not None


def test_a_head_that_lost_the_run_is_told(identity: Identity, tmp_path: Path) -> None:
    async def scene() -> None:
        stored = await claim_run(identity)
        assert stored is not None
        lost = asyncio.Event()
        SwitchedBucket(tmp_path / "store").put(head_object(7), b"another")
        stored.begin(coordinator_of(identity), lost.set)
        stored.point(POINTER)
        async with asyncio.timeout(60):
            await lost.wait()
        stored.close()

    asyncio.run(scene())
    assert SwitchedBucket(tmp_path / "store").get("coordinator.json") is None


def test_a_checkpoint_that_a_rollout_node_puts_into_the_store_is_never_loaded(
    make_spec: MakeSpec, tmp_path: Path
) -> None:
    """It may hold keys of the store, and holds the run's secret, by which it knows the pointer."""
    store = tmp_path / "store"
    spec = make_spec(Role.TRAINER).model_copy(update={"store": f"file://{store}", "run_dir": str(tmp_path / "run")})
    forged = tmp_path / "forged"
    forged.mkdir()
    (forged / "model.pt").write_bytes(b"evil")
    upload_folder(Bucket(spec.store), "checkpoints/0-99", forged, "secret")
    identity = Identity(spec=spec, token="t", run_secret="secret", controller_token="controller-token")
    assert asyncio.run(claim_run(identity)) is not None
    assert not list(Path(spec.run_dir).rglob("model.pt"))
