from hexcloud.adapters.provisioners.sky_task import AUTODOWN_MINUTES
from hexcloud.controller.outside import RunSecrets, Timing
from hexcloud.domain.fleet import NodeId
from hexcloud.node import trainer
from hexcloud.node.trainer_process import LAST_WORDS_S

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


def test_a_machine_that_ends_itself_does_so_within_what_is_reserved_for_it() -> None:
    graces_s = trainer.LAPSE_GRACE_S + trainer.STORE_GRACE_S + trainer.FLUSH_S + LAST_WORDS_S
    watchdog_s = AUTODOWN_MINUTES * 60 + 60.0  # it looks once a minute
    assert Timing.of_clouds(300.0).self_end_s >= graces_s + watchdog_s
