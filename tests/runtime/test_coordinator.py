"""The coordinator's rules, on a clock that the test moves."""

import asyncio
from pathlib import Path

import pytest

from hexcloud.domain.fleet import NodeId
from hexcloud.domain.lease import LeaseId
from hexcloud.domain.messages import (
    INTERRUPTION,
    REBALANCE,
    Admit,
    Batch,
    DrainRequest,
    Evaluation,
    Heartbeat,
    LeaseGrant,
    LeaseRenewal,
    Notice,
    Partial,
    PartialCommit,
    Register,
    Renewal,
    RunPhase,
    Startup,
    StopRequest,
)
from hexcloud.domain.metrics import StepRow
from hexcloud.domain.plan import Role
from hexcloud.runtime.coordinator import SILENT_BEATS, UnknownNodeError
from hexcloud.runtime.coordinator_access import token_sha256
from hexcloud.runtime.coordinator_publish import ConflictError
from hexcloud.runtime.coordinator_start import Start
from tests.runtime.coordinator_desk import HEAD, A, B, Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.publish(0)
    desk.register()
    return desk


def test_nothing_is_granted_before_the_first_weights_are_published(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert desk.register().latest is None
    assert desk.ask(1) == LeaseGrant()
    desk.publish(0)
    assert len(desk.ask(1).leases) == 1


def test_leases_carry_prompts_of_the_task(desk: Desk) -> None:
    first, second, other = desk.ask(3).leases
    assert first.prompt_ids == second.prompt_ids == (1, int(first.answer))
    assert other.prompt_ids != first.prompt_ids
    assert first.max_new_tokens == 5
    assert first.deadline_s > desk.now_s


def test_a_run_that_goes_on_draws_the_prompts_that_follow(tmp_path: Path) -> None:
    prompts = []
    for cursor in (0, 0, 2):
        desk = Desk(tmp_path, Start(epoch=1, cursor=cursor))
        desk.publish(0)
        desk.register()
        prompts.append([lease.answer for lease in desk.ask(8).leases])
    assert prompts[0] == prompts[1]
    assert prompts[2][:4] == prompts[0][4:]


def test_a_batch_says_how_many_prompts_were_drawn(desk: Desk) -> None:
    leases = desk.ask(8).leases
    desk.submit(leases)
    assert desk.batch().cursor == len({lease.group for lease in leases})


def test_a_worker_behind_is_told_to_load_only_while_there_is_work(desk: Desk) -> None:
    desk.step(1)
    desk.register(B)
    desk.ask(4, version=1, node_id=B)
    grant = desk.ask(1, version=0)
    assert (grant.leases, grant.load and grant.load.version) == ((), 1)
    desk.ask(4, version=1, node_id=B)
    assert desk.ask(1, version=0) == LeaseGrant(), "full"


def test_a_worker_without_weights_is_told_to_load(desk: Desk) -> None:
    grant = desk.ask(1, version=-1)
    assert grant.leases == ()
    assert grant.load is not None
    assert (grant.load.version, grant.load.sha256) == (0, "hash of 0")


def test_a_batch_is_what_was_generated_and_the_same_until_it_is_published(desk: Desk) -> None:
    assert (desk.batch().version, desk.batch().groups) == (0, ())
    leases = desk.ask(4).leases
    desk.submit(leases)
    batch = desk.batch()
    assert {sample.lease for group in batch.groups for sample in group.samples} == {lease.id for lease in leases}
    assert desk.batch() == batch
    desk.publish(1)
    assert (desk.batch().version, desk.batch().groups) == (1, ())


def test_a_long_poll_ends_as_soon_as_the_batch_is_there(desk: Desk) -> None:
    async def poll() -> Batch:
        polling = asyncio.create_task(desk.coordinator.batch(wait_s=30.0))
        await asyncio.sleep(0)
        desk.submit(desk.ask(4).leases)
        return await asyncio.wait_for(polling, timeout=5.0)

    assert len(asyncio.run(poll()).groups) == 2


def test_a_stop_ends_a_long_poll_with_the_order_to_checkpoint(desk: Desk) -> None:
    async def poll() -> Batch:
        polling = asyncio.create_task(desk.coordinator.batch(wait_s=30.0))
        await asyncio.sleep(0)
        desk.coordinator.stop(StopRequest(reason="enough"))
        return await asyncio.wait_for(polling, timeout=5.0)

    assert asyncio.run(poll()) == Batch(version=0, done=True, checkpoint=True)


def test_a_stop_lets_the_step_in_training_be_published_and_rollout_nodes_go(desk: Desk) -> None:
    desk.register(HEAD, Role.TRAINER)
    desk.submit(desk.ask(4).leases)
    desk.batch()
    desk.coordinator.stop(StopRequest(reason="enough"))
    desk.coordinator.stop(StopRequest(reason="later"))
    assert desk.coordinator.stop_reason == "enough"
    assert desk.ask(4).leases == ()
    desk.publish(1)
    assert desk.batch().done
    assert desk.beat().stop
    assert not desk.beat(HEAD).stop, "the trainer still writes"
    assert desk.coordinator.view().phase is RunPhase.TRAINING
    desk.coordinator.finish()
    assert desk.beat(HEAD).stop
    assert desk.coordinator.view().phase is RunPhase.DONE


def test_after_the_last_step_there_is_nothing_left_to_train_or_to_generate(tmp_path: Path) -> None:
    desk = Desk(tmp_path, steps=2)
    desk.publish(0)
    desk.register()
    for version in (1, 2):
        desk.step(version)
    assert desk.batch() == Batch(version=2, done=True)
    assert desk.ask(4, version=2).leases == ()
    assert desk.beat().stop


def test_the_run_stops_with_a_checkpoint_when_its_spend_lease_lapses(desk: Desk) -> None:
    desk.coordinator.renew(Renewal(run_until_s=desk.now_s + 10.0))
    assert desk.beat().run_until_s == desk.now_s + 10.0
    desk.now_s += 9.9
    desk.coordinator.tick()
    assert not desk.coordinator.has_lapsed
    desk.now_s += 0.1
    desk.coordinator.tick()
    assert desk.coordinator.has_lapsed
    assert desk.batch() == Batch(version=0, done=True, checkpoint=True)


def test_the_spend_lease_lasts_from_the_start_without_any_renewal(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert desk.register().run_until_s == desk.now_s + 60.0


def test_a_silent_workers_leases_go_to_others_and_it_may_come_back(desk: Desk) -> None:
    (lease,) = desk.ask(1).leases
    desk.now_s += SILENT_BEATS * 1.0 + 0.1
    desk.register(B)
    desk.coordinator.tick()
    (again,) = desk.ask(1, node_id=B).leases
    assert (again.id, again.attempt) == (lease.id, 1)
    assert desk.beat(held=(lease,)).abort == (lease.id,)
    assert len(desk.ask(1).leases) == 1


def test_delivering_samples_is_a_sign_of_life(desk: Desk) -> None:
    leases = desk.ask(2).leases
    desk.now_s += 4.0
    desk.submit(leases[:1])
    desk.now_s += 4.0
    desk.coordinator.tick()
    assert desk.coordinator.view().nodes[0].silent_s == 4.0
    assert desk.beat(held=leases[1:]).abort == ()


def test_an_overdue_lease_is_aborted_at_its_worker(desk: Desk) -> None:
    (lease,) = desk.ask(1).leases
    desk.coordinator.renew(Renewal(run_until_s=desk.now_s + 1e6))
    desk.now_s = lease.deadline_s
    desk.beat()
    desk.coordinator.tick()
    assert desk.beat().abort == (lease.id,)


def test_a_released_partial_is_continued_by_another_worker(desk: Desk) -> None:
    (lease,) = desk.ask(1).leases
    partial = Partial(lease=lease.id, attempt=0, tokens=(7,), logprobs=(-0.5,), versions=(0,))
    desk.coordinator.commit(PartialCommit(node_id=A, partials=(partial,), released=True))
    desk.register(B)
    (again,) = desk.ask(1, node_id=B).leases
    assert (again.id, again.attempt, again.prefix, again.prefix_logprobs) == (lease.id, 1, (7,), (-0.5,))


def test_a_renewed_lease_outlives_its_deadline_with_what_was_committed(desk: Desk) -> None:
    first, second = desk.ask(2).leases
    partial = Partial(lease=first.id, attempt=0, tokens=(7,), logprobs=(-0.5,), versions=(0,))
    desk.coordinator.commit(PartialCommit(node_id=A, partials=(partial,)))
    desk.coordinator.renew(Renewal(run_until_s=desk.now_s + 1e6))
    desk.now_s += 50.0
    # An attempt that is not its own, and a lease that nobody has, are none of its business.
    told = ((first.id, 0), (second.id, 1), (LeaseId("99.0"), 0))
    desk.coordinator.keep(LeaseRenewal(node_id=A, leases=told))
    desk.now_s += 20.0
    desk.beat()
    desk.coordinator.tick()
    assert desk.beat(held=(first, second)).abort == (second.id,)
    desk.coordinator.commit(PartialCommit(node_id=A, partials=(partial,), released=True))
    assert desk.ask(2).leases[0].prefix == (7,)


def test_a_commit_over_a_gap_is_told_so_and_the_others_of_the_call_are_taken(desk: Desk) -> None:
    first, second = desk.ask(2).leases
    part = Partial(lease=first.id, attempt=0, start=1, tokens=(7,), logprobs=(-0.5,), versions=(0,))
    other = Partial(lease=second.id, attempt=0, tokens=(8,), logprobs=(-0.5,), versions=(0,))
    with pytest.raises(ConflictError, match="of 1 samples"):
        desk.coordinator.commit(PartialCommit(node_id=A, partials=(part, other)))
    parked = desk.coordinator._admission._groups.live[first.group].parked
    assert {index: one.opened().tokens for index, one in parked.items()} == {second.index: (8,)}


def test_a_commit_for_another_workers_lease_changes_nothing(desk: Desk) -> None:
    (lease,) = desk.ask(1).leases
    desk.register(B)
    partial = Partial(lease=lease.id, attempt=0, tokens=(7,), logprobs=(-0.5,), versions=(0,))
    desk.coordinator.commit(PartialCommit(node_id=B, partials=(partial,), released=True))
    assert desk.beat(held=(lease,)).abort == ()


def test_a_draining_node_takes_nothing_new_and_is_drained_when_empty(desk: Desk) -> None:
    leases = desk.ask(2).leases
    desk.coordinator.drain(DrainRequest(node_id=A))
    assert desk.beat().drain
    assert desk.ask(2).leases == ()
    assert not desk.coordinator.view().nodes[0].drained
    desk.submit(leases)
    assert desk.coordinator.view().nodes[0].drained


def test_a_revoked_node_is_forgotten_and_its_leases_go_to_others(desk: Desk) -> None:
    (lease,) = desk.ask(1).leases
    desk.coordinator.admit(Admit(node_id=B, token_sha256=token_sha256("b"), revoke=(A,)))
    assert desk.coordinator.view().nodes == ()
    with pytest.raises(UnknownNodeError):
        desk.beat()
    desk.register(B)
    assert desk.ask(1, node_id=B).leases[0].id == lease.id


def test_a_node_that_has_not_registered_is_asked_to(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for call in (desk.beat, lambda: desk.ask(1), lambda: desk.submit(())):
        with pytest.raises(UnknownNodeError):
            call()


def test_a_trainer_that_registers_gets_no_leases(desk: Desk) -> None:
    desk.register(HEAD, Role.TRAINER)
    assert desk.ask(4, node_id=HEAD).leases == ()


def test_a_run_begins_with_the_weights_it_says_it_begins_with(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Start(epoch=2, version=20))
    with pytest.raises(ConflictError, match="where the run begins"):
        desk.publish(0)
    desk.publish(20)
    view = desk.coordinator.view()
    assert (view.epoch, view.version, view.checkpoint_version, view.trained_samples) == (2, 20, 20, 0)


def test_the_last_eta_plus_two_versions_are_served(desk: Desk) -> None:
    for version in range(1, 5):
        desk.step(version)
    paths = [desk.coordinator.weights.path(0, version) for version in range(5)]
    assert paths == [None, None, Path("/weights/2"), Path("/weights/3"), Path("/weights/4")]


def test_a_restarted_trainer_goes_on_from_its_checkpoint_in_a_new_epoch(desk: Desk) -> None:
    for version in (1, 2, 3):
        desk.step(version)
    (held,) = desk.ask(1, version=3).leases
    desk.publish(1, epoch=1, sha256="hash of 1", checkpoint_version=1)
    desk.epoch = 1
    assert desk.coordinator.weights.path(0, 3) is None, "abandoned versions are never served"
    assert desk.ask(1, version=3).leases == ()
    orders = desk.beat(epoch=1, held=(held,))
    assert (orders.epoch, orders.abort) == (1, (held.id,))
    assert orders.latest is not None
    assert (orders.latest.epoch, orders.latest.version) == (1, 1)
    desk.step(2)
    view = desk.coordinator.view()
    assert (view.epoch, view.version, view.checkpoint_version) == (1, 2, 1)


def test_the_view_tells_what_was_measured(desk: Desk, tmp_path: Path) -> None:
    assert desk.coordinator.view().phase is RunPhase.STARTING
    desk.coordinator.evaluate(Evaluation(when="before", accuracy=0.3))
    began_s = desk.now_s + 0.5
    for version in (1, 2, 3):
        desk.step(version)
    desk.beat()
    view = desk.coordinator.view()
    assert view.phase is RunPhase.TRAINING
    assert (view.first_step_at_s, view.last_step_at_s) == (began_s, began_s + 2.5)
    assert view.samples_per_wall_s == pytest.approx(4.0)
    assert view.staleness_histogram == {0: 12}
    assert view.trainer_wait_s == pytest.approx(0.2)
    assert (view.reward, view.accuracy_before, view.accuracy_after) == (0.5, 0.3, None)
    assert view.outstanding == 0
    assert view.overlap_share == 0.0, "here nobody generates while the trainer works"
    rows = [StepRow.model_validate_json(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(row.version, row.samples, row.staleness) for row in rows] == [(n, 4, {0: 4}) for n in (1, 2, 3)]


def test_overlap_counts_the_time_with_open_leases_while_the_trainer_works(desk: Desk) -> None:
    desk.submit(desk.ask(4).leases)
    desk.batch()
    desk.now_s += 1.0
    more = desk.ask(4).leases
    desk.now_s += 3.0
    desk.submit(more)
    assert desk.coordinator.view().overlap_share == pytest.approx(0.75)


def test_staleness_is_counted_per_sample_by_its_oldest_token(desk: Desk) -> None:
    first, second = desk.ask(4).leases, desk.ask(4).leases
    desk.submit(first)
    desk.batch()
    desk.publish(1)
    desk.submit(second)
    desk.batch()
    desk.publish(2)
    assert desk.coordinator.view().staleness_histogram == {0: 4, 1: 4}


def test_nodes_are_told_what_to_probe(desk: Desk) -> None:
    desk.register(HEAD, Role.TRAINER)
    assert desk.beat().probe == (f"{HEAD}:1",)
    assert desk.beat().probe == ()


def hear(desk: Desk, node_id: NodeId, cause: str) -> None:
    notice = Notice(cause=cause, until_s=desk.now_s + 120.0, detail="terminate")
    beat = Heartbeat(node_id=node_id, epoch=0, version=0, running=0, generated_tokens=0, notice=notice)
    desk.coordinator.heartbeat(beat)


def test_the_clouds_word_about_a_machine_reaches_the_controller(desk: Desk) -> None:
    desk.register(A)
    desk.beat(A)
    assert desk.coordinator.view().nodes[0].notice is None
    hear(desk, A, INTERRUPTION)
    notice = desk.coordinator.view().nodes[0].notice
    assert notice is not None and (notice.cause, notice.detail) == (INTERRUPTION, "terminate")
    desk.register(A)
    assert desk.coordinator.view().nodes[0].notice == notice


@pytest.mark.parametrize(
    ("role", "cause", "is_asked"),
    [
        (Role.TRAINER, INTERRUPTION, True),
        (Role.TRAINER, REBALANCE, False),
        (Role.ROLLOUT, INTERRUPTION, False),
    ],
)
def test_a_gang_that_will_lose_a_machine_puts_its_work_away_once(
    desk: Desk, role: Role, cause: str, is_asked: bool
) -> None:
    desk.register(A)
    desk.register(B, role)
    desk.submit(desk.ask(4).leases)
    hear(desk, B, cause)
    assert desk.batch().checkpoint is is_asked
    assert desk.batch().groups
    desk.publish(1)
    hear(desk, B, cause)
    assert not desk.batch().checkpoint


def test_a_notice_during_a_step_asks_for_a_checkpoint_after_it(desk: Desk) -> None:
    desk.register(A)
    desk.register(B, Role.TRAINER)
    desk.submit(desk.ask(4).leases)
    assert desk.batch().groups
    hear(desk, B, INTERRUPTION)
    desk.publish(1)
    assert desk.batch().checkpoint


def test_how_a_machine_came_up_is_told_once(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    first = Register(node_id=A, role=Role.ROLLOUT, slots=8, address="", startup=Startup(setup_s=40.0, program_s=2.0))
    desk.coordinator.register(first)
    desk.coordinator.register(first.model_copy(update={"startup": Startup(program_s=900.0)}))
    assert desk.coordinator.view().nodes[0].startup == Startup(setup_s=40.0, program_s=2.0)


def test_a_run_with_a_store_is_done_when_its_result_is_there_and_not_before(tmp_path: Path) -> None:
    desk = Desk(tmp_path, store="s3://runs/run")
    desk.publish(0, checkpoint_version=0)
    desk.register(A)
    assert desk.coordinator.view().checkpoint_version == -1
    desk.coordinator.note_store(0, "the store is away")
    view = desk.coordinator.view()
    assert (view.checkpoint_version, view.store_trouble) == (0, "the store is away")
    desk.coordinator.finish()
    assert desk.coordinator.is_finished and not desk.coordinator.is_done
    assert desk.coordinator.view().phase is not RunPhase.DONE
    desk.coordinator.deliver()
    assert desk.coordinator.view().phase is RunPhase.DONE


def test_a_trainers_machines_stay_until_the_result_is_stored(tmp_path: Path) -> None:
    desk = Desk(tmp_path, store="s3://runs/run")
    desk.publish(0)
    desk.register(B, Role.TRAINER)
    desk.coordinator.finish()
    assert not desk.beat(B).stop
    desk.coordinator.deliver()
    assert desk.beat(B).stop
