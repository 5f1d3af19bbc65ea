from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import RunPhase
from hexcloud.simulator.training import Training


def test_versions_are_whole_batches_and_checkpoints_every_twenty() -> None:
    training = Training()
    training.recover(NodeId("head"), steps=100, samples_per_step=10)
    assert training.phase is RunPhase.STARTING
    training.train(215.0, wall_s=5.0)
    assert (training.version, training.checkpoint_version, training.phase) == (21, 20, RunPhase.TRAINING)
    training.recover(NodeId("head"), steps=100, samples_per_step=10)
    assert (training.epoch, training.version) == (1, 20)
    training.train(10_000.0, wall_s=9.0)
    assert (training.version, training.is_over) == (100, True)
    training.checkpoint()
    assert training.is_done
    assert (training.first_step_wall_s, training.last_step_wall_s) == (5.0, 9.0)


def test_a_lost_share_of_the_state_takes_the_run_back_to_its_checkpoint_under_the_same_head() -> None:
    training = Training()
    training.recover(NodeId("head"), steps=100, samples_per_step=10)
    training.train(215.0, wall_s=5.0)
    training.begin_anew()
    assert (training.head, training.epoch, training.version, training.phase) == ("head", 1, 20, RunPhase.TRAINING)
    training.recover(NodeId("other"), steps=100, samples_per_step=10)
    assert (training.epoch, training.phase) == (2, RunPhase.STARTING)
