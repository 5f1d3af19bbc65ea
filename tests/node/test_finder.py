from pathlib import Path

import pytest

from hexcloud.adapters.objects import Bucket
from hexcloud.domain.command import NodeSpec
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.fleet import RunId
from hexcloud.domain.messages import POINTER_FILE
from hexcloud.domain.plan import Role
from hexcloud.domain.pointer import sign_pointer
from hexcloud.node.finder import pointer_finder
from hexcloud.node.identity import Identity
from hexcloud.runtime.pointer import write_pointer
from tests.node.conftest import MakeSpec

POINTER = sign_pointer(RunId("run"), "http://127.0.0.1:1234", 0, "secret")


def identity(spec: NodeSpec) -> Identity:
    return Identity(spec=spec, token="token", run_secret="secret", controller_token="")


def test_nodes_of_one_folder_find_the_pointer_there(make_spec: MakeSpec, tmp_path: Path) -> None:
    write_pointer(tmp_path, POINTER)
    assert pointer_finder(identity(make_spec(Role.ROLLOUT)))() == POINTER


def test_nodes_without_a_common_folder_find_it_in_the_store(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = make_spec(Role.ROLLOUT).model_copy(update={"store": f"file://{tmp_path}/store", "run_dir": "run"})
    Bucket(spec.store).put(POINTER_FILE, POINTER.model_dump_json().encode())
    assert pointer_finder(identity(spec))() == POINTER


def test_a_store_that_is_none_is_said_at_once(make_spec: MakeSpec) -> None:
    with pytest.raises(ConfigError, match="a store is s3://"):
        pointer_finder(identity(make_spec(Role.ROLLOUT).model_copy(update={"store": "nonsense"})))
