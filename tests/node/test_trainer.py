import asyncio
from pathlib import Path

import pytest

from hexcloud.adapters.certificates import RunAuthority
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.plan import Role
from hexcloud.node.address import Place
from hexcloud.node.identity import Identity
from hexcloud.node.trainer import begin_copies, door_of, start_of
from hexcloud.runtime.checkpoint_index import COUNTERS, checkpoint_path, write_manifest
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.coordinator_access import AccessList
from hexcloud.runtime.coordinator_start import Start
from hexcloud.runtime.tasks import SORT_DIGITS
from tests.node.conftest import MakeSpec


def write_checkpoint(run_dir: Path, epoch: int, version: int) -> Path:
    path = checkpoint_path(run_dir, epoch, version)
    path.mkdir(parents=True)
    (path / "state").write_bytes(b"weights")
    write_manifest(path)
    return path


def test_a_new_run_starts_at_the_beginning(tmp_path: Path) -> None:
    assert start_of(tmp_path) == Start(epoch=0, version=0)


def test_a_run_goes_on_at_its_newest_checkpoint_in_a_new_epoch(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 0, 40)
    write_checkpoint(tmp_path, 1, 20)
    assert start_of(tmp_path) == Start(epoch=2, version=20)


def test_a_run_goes_on_with_the_prompts_after_those_that_were_drawn(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, 0, 40)
    (path / COUNTERS).write_text('{"cursor": 1300}')
    write_manifest(path)
    assert start_of(tmp_path) == Start(epoch=1, version=40, cursor=1300)


def test_a_torn_checkpoint_is_passed_over(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 0, 20)
    (write_checkpoint(tmp_path, 0, 40) / "state").write_bytes(b"torn")
    assert start_of(tmp_path) == Start(epoch=1, version=20)


def test_the_epoch_of_a_torn_checkpoint_is_not_taken_again(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 1, 60)
    (write_checkpoint(tmp_path, 2, 60) / "state").write_bytes(b"torn")
    assert start_of(tmp_path) == Start(epoch=3, version=60)


def test_a_run_whose_checkpoints_are_all_torn_begins_anew_in_a_new_epoch(tmp_path: Path) -> None:
    (write_checkpoint(tmp_path, 0, 20) / "state").write_bytes(b"torn")
    assert start_of(tmp_path) == Start(epoch=1, version=0)


def head_of(make_spec: MakeSpec, tls_key: str = "", certificate: str = "") -> Identity:
    spec = make_spec(Role.TRAINER).model_copy(update={"coordinator_port": 8477})
    return Identity(spec, "head-token", "secret", "controller-token", tls_key, certificate)


def test_a_head_on_this_machine_needs_no_certificate(make_spec: MakeSpec) -> None:
    door = door_of(head_of(make_spec), Place("127.0.0.1", "127.0.0.1", "127.0.0.1"))
    assert (door.host, door.port, door.tls) == ("127.0.0.1", 8477, None)


def test_a_head_that_others_dial_does_not_start_without_one(make_spec: MakeSpec) -> None:
    with pytest.raises(ConfigError, match="only with a certificate"):
        door_of(head_of(make_spec), Place("0.0.0.0", "203.0.113.7", "10.0.0.6"))


def test_a_head_that_others_dial_proves_itself(make_spec: MakeSpec) -> None:
    authority = RunAuthority(b"k" * 32, 1_790_000_000.0)
    head = NodeId("run.trainer.0")
    identity = head_of(make_spec, authority.private_key(head), authority.certificate(head))
    door = door_of(identity, Place("0.0.0.0", "203.0.113.7", "10.0.0.6"))
    assert door.tls is not None
    assert door.url(door.address, door.port) == "https://203.0.113.7:8477"
    with pytest.raises(ConfigError, match="do not belong together"):
        door_of(
            head_of(make_spec, authority.private_key(NodeId("another")), identity.certificate),
            Place("0.0.0.0", "203.0.113.7", "10.0.0.6"),
        )


def test_a_store_that_this_head_cannot_open_is_named_and_the_run_goes_on(make_spec: MakeSpec, tmp_path: Path) -> None:
    async def scene() -> None:
        stores = {"aws/a": "nonsense://weights", "aws/b": f"file://{tmp_path}/store"}
        spec = make_spec(Role.TRAINER).model_copy(update={"weights_stores": stores})
        coordinator = Coordinator(spec, SORT_DIGITS, AccessList("controller-token", {}))
        begin_copies(coordinator)
        copies = coordinator.weights.copies
        assert copies.is_open("aws/b") and not copies.is_open("aws/a")
        assert "nonsense" in coordinator.view().stores_trouble["aws/a"]
        await copies.close()

    asyncio.run(scene())
