import pytest

from hexcloud.domain.fleet import NodeId
from hexcloud.domain.plan import Role
from hexcloud.runtime.coordinator_access import AccessList, Caller, token_sha256

HEAD, A, B = NodeId("run.trainer-0.0"), NodeId("run.rollout-0.0"), NodeId("run.rollout-1.0")


def access() -> AccessList:
    list_ = AccessList("controller-token", {HEAD: token_sha256("head-token")})
    list_.admit(A, token_sha256("token-a"))
    return list_


def test_a_token_names_its_node_and_what_it_was_admitted_for() -> None:
    assert access().caller("Bearer token-a") == Caller(A, Role.ROLLOUT)
    assert access().caller("Bearer head-token") == Caller(HEAD, Role.TRAINER)


def test_a_machine_that_joins_the_gang_is_admitted_as_one_of_the_trainer() -> None:
    list_ = access()
    list_.admit(B, token_sha256("token-b"), Role.TRAINER)
    assert list_.caller("Bearer token-b") == Caller(B, Role.TRAINER)


def test_the_controllers_token_names_the_controller() -> None:
    caller = access().caller("Bearer controller-token")
    assert caller is not None
    assert caller.is_controller


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Bearer nobody", "Basic token-a", "token-a"])
def test_anything_else_names_nobody(header: str) -> None:
    assert access().caller(header) is None


def test_an_admitted_node_is_let_in_and_a_revoked_one_is_not() -> None:
    list_ = access()
    list_.admit(B, token_sha256("token-b").upper())
    assert list_.caller("Bearer token-b") == Caller(B, Role.ROLLOUT)
    list_.revoke(B)
    assert list_.caller("Bearer token-b") is None


def test_a_new_token_replaces_the_old_one() -> None:
    list_ = access()
    list_.admit(A, token_sha256("renewed"))
    assert list_.caller("Bearer token-a") is None
    assert list_.caller("Bearer renewed") == Caller(A, Role.ROLLOUT)


def test_the_hash_of_a_token_is_no_token() -> None:
    assert access().caller(f"Bearer {token_sha256('token-a')}") is None
