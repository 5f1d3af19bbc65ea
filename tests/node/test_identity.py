from pathlib import Path

import pytest

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.fleet import NodeId, RunId
from hexcloud.domain.plan import Role, SlotName
from hexcloud.node.identity import SECRETS, child_environment, read_identity

ENVIRONMENT = {"HEXCLOUD_NODE_TOKEN": "token-a", "HEXCLOUD_RUN_SECRET": "secret-b", "HEXCLOUD_CONTROLLER_TOKEN": "c-c"}


def write_spec(directory: Path, role: Role) -> None:
    spec = NodeSpec(
        run_id=RunId("r"),
        node_id=NodeId("r.s.0"),
        slot=SlotName("s"),
        role=role,
        task="sort_digits",
        seed=0,
        slots=8,
        samples_per_step=64,
        group_size=8,
        eta=4,
        steps=2,
        run_dir=str(directory),
        output=str(directory),
        tokens_per_sample=2048,
    )
    (directory / "node.json").write_text(spec.model_dump_json())


def test_a_node_reads_who_it_is(tmp_path: Path) -> None:
    write_spec(tmp_path, Role.ROLLOUT)
    identity = read_identity(tmp_path, Role.ROLLOUT, ENVIRONMENT)
    assert (identity.spec.slots, identity.token, identity.run_secret) == (8, "token-a", "secret-b")


def test_secrets_never_show(tmp_path: Path) -> None:
    write_spec(tmp_path, Role.ROLLOUT)
    shown = repr(read_identity(tmp_path, Role.ROLLOUT, ENVIRONMENT))
    assert not any(secret in shown for secret in ENVIRONMENT.values())


def test_a_missing_secret_is_named(tmp_path: Path) -> None:
    write_spec(tmp_path, Role.TRAINER)
    with pytest.raises(ConfigError, match="HEXCLOUD_RUN_SECRET must be set"):
        read_identity(tmp_path, Role.TRAINER, {**ENVIRONMENT, "HEXCLOUD_RUN_SECRET": ""})


@pytest.mark.parametrize("role", list(Role))
def test_only_the_trainers_head_has_a_controllers_token(tmp_path: Path, role: Role) -> None:
    write_spec(tmp_path, role)
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "HEXCLOUD_CONTROLLER_TOKEN"}
    assert read_identity(tmp_path, role, environment).controller_token == ""


def test_the_wrong_role_and_a_broken_file_are_refused(tmp_path: Path) -> None:
    write_spec(tmp_path, Role.TRAINER)
    with pytest.raises(ConfigError, match="this is a trainer node, started as rollout"):
        read_identity(tmp_path, Role.ROLLOUT, ENVIRONMENT)
    (tmp_path / "node.json").write_text("{")
    with pytest.raises(ConfigError, match="not the specification of a node"):
        read_identity(tmp_path, Role.TRAINER, ENVIRONMENT)


def test_a_child_sees_no_secret_but_those_it_needs() -> None:
    assert child_environment({**ENVIRONMENT, "HOME": "/h"}) == {"HOME": "/h", "OMP_NUM_THREADS": "1"}
    ranked = {f"{name}_3": "hush" for name in SECRETS}
    assert child_environment(ENVIRONMENT | ranked, HEXCLOUD_NODE_TOKEN="its") == {
        "HEXCLOUD_NODE_TOKEN": "its",
        "OMP_NUM_THREADS": "1",
    }


def test_a_child_sees_no_key_of_the_store() -> None:
    environment = {"AWS_SECRET_ACCESS_KEY": "hush", "HOME": "/h"}
    assert child_environment(environment, ("AWS_SECRET_ACCESS_KEY",)) == {"HOME": "/h", "OMP_NUM_THREADS": "1"}


def test_a_gangs_machines_each_take_the_secrets_of_their_rank(tmp_path: Path) -> None:
    write_spec(tmp_path, Role.TRAINER)
    common = {"HEXCLOUD_RUN_SECRET": "secret-b", "HEXCLOUD_CONTROLLER_TOKEN_0": "c-c"}
    tokens = {"HEXCLOUD_NODE_TOKEN_0": "of the head", "HEXCLOUD_NODE_TOKEN_1": "of the member"}
    seen = [
        read_identity(tmp_path, Role.TRAINER, common | tokens | {"SKYPILOT_NODE_RANK": rank}) for rank in ("0", "1")
    ]
    assert [(one.token, one.controller_token) for one in seen] == [("of the head", "c-c"), ("of the member", "")]
    assert {one.run_secret for one in seen} == {"secret-b"}


def test_a_head_brings_its_certificate_along(tmp_path: Path) -> None:
    write_spec(tmp_path, Role.TRAINER)
    (tmp_path / "coordinator.pem").write_text("public")
    identity = read_identity(tmp_path, Role.TRAINER, ENVIRONMENT | {"HEXCLOUD_TLS_KEY": "hush"})
    assert (identity.certificate, identity.tls_key) == ("public", "hush")
    assert "hush" not in repr(identity)


def test_a_given_thread_count_stays() -> None:
    assert child_environment({"OMP_NUM_THREADS": "4"}) == {"OMP_NUM_THREADS": "4"}
