from hexcloud.controller.outside import RunSecrets
from hexcloud.domain.fleet import NodeId

SECRETS = RunSecrets(b"0123456789abcdef")


def test_a_token_survives_a_restart_and_differs_per_node_and_run() -> None:
    token = SECRETS.node_token(NodeId("run.rollout-1.1"))
    assert token == RunSecrets(b"0123456789abcdef").node_token(NodeId("run.rollout-1.1"))
    others = {
        SECRETS.node_token(NodeId("run.rollout-1.2")),
        RunSecrets(b"fedcba9876543210").node_token(NodeId("run.rollout-1.1")),
        SECRETS.run_secret,
        SECRETS.controller_token,
    }
    assert len(others | {token}) == 5


def test_secrets_are_not_in_their_repr() -> None:
    assert "0123456789abcdef" not in repr(SECRETS)


def test_the_coordinator_learns_only_a_hash_of_the_token() -> None:
    node = NodeId("run.rollout-1.1")
    assert SECRETS.node_token_sha256(node) != SECRETS.node_token(node)
    assert len(SECRETS.node_token_sha256(node)) == 64
