"""The rules of admission, each in a history of its own."""

import pytest

from hexcloud.admission import admission
from hexcloud.admission.admission import MAX_REPLACED_BATCHES, Ask, Granted, Receipt
from hexcloud.domain.lease import LeaseEnd, LeaseId
from hexcloud.domain.response import Response
from tests.admission.desk import MAX_NEW, VOCABULARY, Desk, sample_of, terms


def test_a_run_with_eta_zero_makes_one_batch_per_version_and_goes_on() -> None:
    desk = Desk(terms(steps=2, size=2, eta=0))
    for version in range(3):
        leases = desk.leases("a", 4)
        assert desk.ask("a", 1) == Granted()
        desk.submit(*leases)
        assert len(desk.admission.take()) == 2
        assert desk.ask("a", 1) == Granted(), "the batch in training still counts"
        desk.admission.publish(version + 1)
    assert desk.admission.trained_samples == 12


def test_whole_groups_count_even_if_only_some_of_their_samples_are_leased() -> None:
    desk = Desk(terms(steps=2, size=4, eta=0))
    desk.leases("a", 1)
    assert desk.admission.outstanding == 4


def test_a_worker_is_never_granted_more_than_its_free_slots() -> None:
    desk = Desk(terms(steps=4, size=4, eta=4))
    desk.admission.join("a", 3)
    ask = Ask("a", 0, 0, want=10)
    assert len(desk.admission.grant(ask, 0.0, lambda: next(desk.prompts)).leases) == 3
    assert desk.admission.grant(ask, 0.0, lambda: next(desk.prompts)) == Granted()


def test_a_worker_that_never_joined_gets_nothing() -> None:
    desk = Desk(terms())
    assert desk.admission.grant(Ask("stranger", 0, 0, 4), 0.0, lambda: next(desk.prompts)) == Granted()


def test_a_worker_behind_is_told_to_load_when_its_samples_would_come_too_late() -> None:
    desk = Desk(terms(steps=1, size=2, eta=1))
    desk.step()
    first = desk.ask("slow", 2, version=0)
    assert len(first.leases) == 2, "due at step 1: age 1 is allowed"
    assert desk.ask("slow", 2, version=0) == Granted(must_load=True), "due at step 2: age 2 is not"
    assert len(desk.ask("quick", 2, version=1).leases) == 2


@pytest.mark.parametrize(("version", "epoch"), [(-1, 0), (1, 0), (0, 1)])
def test_a_worker_with_no_weights_or_weights_unheard_of_is_told_to_load(version: int, epoch: int) -> None:
    assert Desk(terms()).ask("a", 1, version=version, epoch=epoch) == Granted(must_load=True)


def test_a_full_run_tells_nobody_to_load() -> None:
    desk = Desk(terms(steps=1, size=2, eta=0))
    desk.leases("a", 2)
    assert desk.ask("b", 2, version=-1) == Granted()


def test_a_late_result_of_an_expired_lease_changes_nothing() -> None:
    desk = Desk(terms())
    (lease,) = desk.leases("a", 1)
    assert desk.admission.expire(10.0).total() == 1
    (again,) = desk.leases("b", 1)
    assert (again.id, again.attempt) == (lease.id, lease.attempt + 1)
    assert desk.admission.submit("a", sample_of(lease)) is Receipt.LATE
    assert desk.admission.submit("b", sample_of(again)) is Receipt.ACCEPTED
    assert desk.admission.leases.ended == {LeaseEnd.LOST: 1, LeaseEnd.SAMPLE: 1}


def test_a_sample_sent_twice_counts_once() -> None:
    desk = Desk(terms())
    (lease,) = desk.leases("a", 1)
    assert desk.admission.submit("a", sample_of(lease)) is Receipt.ACCEPTED
    assert desk.admission.submit("a", sample_of(lease)) is Receipt.LATE
    assert desk.admission.leases.ended[LeaseEnd.SAMPLE] == 1


def test_a_partial_commit_renews_the_lease() -> None:
    desk = Desk(terms())
    (lease,) = desk.leases("a", 1)
    desk.admission.commit(lease, Response((7,), (-0.1,), (0,)), now_s=8.0)
    assert not desk.admission.expire(17.0)
    assert desk.admission.expire(18.0).total() == 1


def test_a_renewal_keeps_what_was_committed() -> None:
    desk = Desk(terms())
    (lease,) = desk.leases("a", 1)
    desk.admission.commit(lease, Response((7,), (-0.1,), (0,)), now_s=0.0)
    desk.admission.renew(lease, now_s=8.0)
    assert not desk.admission.expire(17.0)
    assert desk.admission.expire(18.0).total() == 1
    assert desk.leases("b", 1)[0].prefix == (7,)


def test_what_goes_on_from_tokens_that_never_came_is_asked_for_again() -> None:
    desk = Desk(terms())
    (lease,) = desk.leases("a", 1)
    more = Response((8,), (-0.2,), (0,))
    assert desk.admission.commit(lease, more, now_s=8.0, start=1) is Receipt.GAP
    assert not desk.admission.expire(17.0), "its worker is there all the same"
    assert desk.admission.commit(lease, Response((7,), (-0.1,), (0,)), now_s=8.0) is Receipt.ACCEPTED
    assert desk.admission.commit(lease, more, now_s=8.0, start=1) is Receipt.ACCEPTED
    desk.admission.release(lease)
    (again,) = desk.leases("b", 1)
    assert again.begun == Response((7, 8), (-0.1, -0.2), (0, 0))


def test_what_goes_on_is_believed_only_as_a_whole() -> None:
    desk = Desk(terms())
    (lease,) = desk.leases("a", 1)
    desk.admission.commit(lease, Response((7,), (-0.1,), (0,)), now_s=0.0)
    too_much = Response((7,) * MAX_NEW, (-0.1,) * MAX_NEW, (0,) * MAX_NEW)
    assert desk.admission.commit(lease, too_much, now_s=0.0, start=1) is Receipt.REFUSED
    desk.admission.join("b", 1)
    (begun,) = desk.leases("b", 1)
    assert begun.prefix == ()


def test_a_preempted_workers_tokens_are_continued_by_another() -> None:
    desk = Desk(terms())
    lease, _ = desk.leases("a", 2)
    desk.admission.commit(lease, Response((7, 8), (-0.1, -0.2), (0, 0)), now_s=0.0)
    desk.admission.leave("a")
    again, other = desk.leases("b", 2)
    assert (again.id, again.attempt) == (lease.id, 1)
    assert (again.prefix, again.prefix_logprobs, again.prefix_versions) == ((7, 8), (-0.1, -0.2), (0, 0))
    assert other.prefix == ()


@pytest.mark.parametrize(
    "committed",
    [
        Response((7,), (), (0,)),
        Response((7,), (-0.1,), (1,)),
        Response((7,), (float("-inf"),), (0,)),
        Response((VOCABULARY,), (-0.1,), (0,)),
        Response((7,) * (MAX_NEW + 1), (-0.1,) * (MAX_NEW + 1), (0,) * (MAX_NEW + 1)),
    ],
    ids=["not equally long", "by weights not published", "not finite", "not of the model", "too long"],
)
def test_a_commit_that_is_not_believed_ends_its_lease_and_what_it_committed_before_is_forgotten(
    committed: Response,
) -> None:
    desk = Desk(terms())
    (lease,) = desk.leases("a", 1)
    assert desk.admission.commit(lease, Response((7, 8), (-0.1, -0.2), (0, 0)), now_s=0.0) is Receipt.ACCEPTED
    assert desk.admission.commit(lease, committed, now_s=0.0) is Receipt.REFUSED
    assert desk.admission.hear("a", 0, ()) == (lease.id,)
    (again,) = desk.leases("b", 1)
    assert (again.id, again.attempt, again.prefix) == (lease.id, 1, ())


def test_a_sample_that_is_not_believed_leaves_what_others_had_begun() -> None:
    desk = Desk(terms())
    (lease,) = desk.leases("a", 1)
    desk.admission.commit(lease, Response((7,), (-0.1,), (0,)), now_s=0.0)
    desk.admission.release(lease)
    (again,) = desk.leases("liar", 1)
    desk.admission.commit(again, Response((7, 9), (-0.1, -0.1), (0, 0)), now_s=0.0)
    assert desk.admission.submit("liar", sample_of(again, reward=1e200)) is Receipt.REFUSED
    assert desk.leases("b", 1)[0].prefix == (7,)


def test_tokens_that_fill_the_response_start_again() -> None:
    desk = Desk(terms())
    (lease,) = desk.leases("a", 1)
    desk.admission.commit(lease, Response((7,) * MAX_NEW, (-0.1,) * MAX_NEW, (0,) * MAX_NEW), now_s=0.0)
    desk.admission.release(lease)
    (again,) = desk.leases("b", 1)
    assert (again.id, again.attempt, again.prefix) == (lease.id, 1, ())


def test_a_beginning_from_which_two_attempts_got_nowhere_is_forgotten() -> None:
    desk = Desk(terms())
    (lease,) = desk.leases("a", 1)
    desk.admission.commit(lease, Response((7,), (-0.1,), (0,)), now_s=0.0)
    desk.admission.release(lease)
    for worker in ("b", "c"):
        (again,) = desk.leases(worker, 1)
        assert again.prefix == (7,)
        desk.admission.commit(again, again.begun, now_s=0.0)
        desk.admission.release(again)
    assert desk.leases("d", 1)[0].prefix == ()


def test_a_beginning_outlives_attempts_that_add_to_it_and_machines_that_are_lost() -> None:
    desk = Desk(terms())
    (lease,) = desk.leases("a", 1)
    desk.admission.commit(lease, Response((7,), (-0.1,), (0,)), now_s=0.0)
    desk.admission.release(lease)
    for attempt in range(3):
        (lost,) = desk.leases(f"lost {attempt}", 1)
        desk.admission.leave(lost.worker)
    (idle,) = desk.leases("idle", 1)
    desk.admission.release(idle)
    (busy,) = desk.leases("busy", 1)
    desk.admission.commit(busy, Response((7, 8), (-0.1, -0.1), (0, 0)), now_s=0.0)
    desk.admission.release(busy)
    (idle,) = desk.leases("idle", 1)
    desk.admission.release(idle)
    assert desk.leases("b", 1)[0].prefix == (7, 8)


def test_one_grant_holds_a_bounded_part_of_all_lost_work(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(terms())
    for lease in desk.leases("lost", 4):
        desk.admission.commit(lease, Response((7, 7), (-0.1, -0.1), (0, 0)), now_s=0.0)
    desk.admission.leave("lost")
    monkeypatch.setattr(admission, "MOST_BEGUN_TOKENS", 3)
    assert [len(desk.ask("a", 4).leases) for _ in range(3)] == [2, 2, 4], "and then new work"


def test_an_older_commit_that_arrives_late_does_not_shorten_the_parked_tokens() -> None:
    desk = Desk(terms())
    (lease,) = desk.leases("a", 1)
    desk.admission.commit(lease, Response((7, 8), (-0.1, -0.2), (0, 0)), now_s=0.0)
    desk.admission.commit(lease, Response((7,), (-0.1,), (0,)), now_s=0.0)
    desk.admission.release(lease)
    assert desk.leases("b", 1)[0].prefix == (7, 8)


def test_a_parked_prefix_too_old_to_be_trained_is_forgotten_and_the_sample_starts_again() -> None:
    desk = Desk(terms(steps=1, size=2, eta=1))
    lease, other = desk.leases("a", 2)
    desk.admission.commit(lease, Response((7,), (-0.1,), (0,)), now_s=0.0)
    desk.admission.release(lease)
    desk.admission.release(other)
    late = desk.leases("late", 2)
    for _ in range(2):
        desk.step()  # others overtake: version 2, where a token of version 0 is too old
    assert desk.admission.leases.ended[LeaseEnd.DROPPED] == 2, "the leases of `late` ended with their tokens"
    assert set(desk.admission.hear("late", 0, ())) == {held.id for held in late}
    again = desk.leases("b", 2)
    assert [(held.id, held.prefix, held.version) for held in again] == [(lease.id, (), 2), (other.id, (), 2)]
    desk.submit(*again)
    assert desk.admission.take()


def test_tokens_parked_when_they_were_young_are_forgotten_once_they_are_too_old() -> None:
    desk = Desk(terms(steps=1, size=2, eta=1))
    lease, _ = desk.leases("slow", 2)
    desk.submit(*desk.leases("quick", 2))
    desk.admission.take()
    desk.admission.publish(1)
    quick = desk.leases("quick", 2)
    desk.admission.commit(lease, Response((7,), (-0.1,), (0,)), now_s=0.0)
    desk.admission.release(lease)
    desk.submit(*quick)
    desk.admission.take()
    desk.admission.publish(2)
    again = desk.leases("quick", 2)
    assert (again[0].id, again[0].prefix) == (lease.id, ())


def test_a_group_with_a_sample_too_old_is_dropped_at_once_and_its_other_leases_are_aborted() -> None:
    desk = Desk(terms(steps=1, size=2, eta=1))
    done, open_lease = desk.leases("slow", 2)
    desk.submit(done)
    desk.step()
    assert desk.admission.dropped_samples == 0
    desk.submit(*desk.leases("quick", 2))
    assert desk.admission.take()
    assert desk.admission.dropped_samples == 2
    assert desk.admission.outstanding == 2, "only the batch in training is left"
    assert desk.admission.hear("slow", 0, ()) == (open_lease.id,)
    assert desk.admission.submit("slow", sample_of(open_lease)) is Receipt.LATE


def test_a_sample_that_comes_too_late_starts_again_in_its_group() -> None:
    desk = Desk(terms(steps=1, size=1, eta=1, replace=False))
    (lease,) = desk.leases("a", 1)
    desk.step()
    (young,) = desk.leases("b", 1)
    desk.admission.commit(lease, Response((7,), (-0.1,), (1,)), now_s=0.0)  # known to be of version 1 so far
    desk.submit(young)
    assert desk.admission.take()
    assert desk.admission.submit("a", sample_of(lease, versions=(0,))) is Receipt.TOO_OLD
    desk.admission.publish(2)
    assert desk.leases("b", 1)[0].id == lease.id
    assert desk.admission.dropped_samples == 1


@pytest.mark.parametrize(
    "lie",
    [{"index": 1}, {"prompt_ids": (9, 9)}, {"versions": (1,)}, {"tokens": (VOCABULARY,)}, {"reward": 1e200}],
    ids=lambda lie: next(iter(lie)),
)
def test_a_sample_that_contradicts_its_lease_is_refused_and_made_again(lie: dict[str, object]) -> None:
    desk = Desk(terms())
    (lease,) = desk.leases("a", 1)
    assert desk.admission.submit("a", sample_of(lease).model_copy(update=lie)) is Receipt.REFUSED
    assert desk.leases("b", 1)[0].id == lease.id


def test_nobody_delivers_for_another_worker() -> None:
    desk = Desk(terms())
    (lease,) = desk.leases("a", 1)
    assert desk.admission.submit("b", sample_of(lease)) is Receipt.LATE
    assert desk.admission.submit("a", sample_of(lease)) is Receipt.ACCEPTED


def test_a_group_without_variance_is_counted_and_replaced() -> None:
    desk = Desk(terms(steps=1, size=2, eta=0))
    desk.submit(*desk.leases("a", 2), reward=1.0)
    assert desk.admission.outstanding == 0
    assert desk.admission.filtered_samples == 2
    assert desk.admission.take() == ()
    desk.step()


def test_without_the_filter_a_group_without_variance_is_trained() -> None:
    desk = Desk(terms(steps=1, size=2, eta=0, replace=False))
    desk.submit(*desk.leases("a", 2), reward=1.0)
    assert len(desk.admission.take()) == 1


def test_a_policy_that_solves_every_prompt_does_not_stop_the_run() -> None:
    desk = Desk(terms(steps=2, size=2, eta=0))
    for step in range(2):
        for _ in range(MAX_REPLACED_BATCHES + 1):
            desk.submit(*desk.ask("a", 4).leases, reward=1.0)
        assert desk.admission.take(), f"step {step}"
        desk.admission.publish(step + 1)
    assert desk.admission.filtered_samples == 2 * MAX_REPLACED_BATCHES * 4


def test_an_ended_lease_that_a_worker_still_reports_is_aborted() -> None:
    desk = Desk(terms())
    mine, ended = desk.leases("a", 2)
    desk.submit(ended)
    told = desk.admission.hear("a", 0, ((mine.id, 0), (ended.id, 0), (LeaseId("77.0"), 0)))
    assert set(told) == {ended.id, LeaseId("77.0")}


def test_an_abort_is_taken_back_when_the_same_worker_gets_the_sample_again() -> None:
    desk = Desk(terms())
    desk.leases("a", 1)
    desk.admission.expire(10.0)
    desk.leases("a", 1)
    assert desk.admission.hear("a", 0, ()) == ()


def test_a_version_follows_only_from_the_batch_taken_for_it() -> None:
    desk = Desk(terms())
    with pytest.raises(ValueError, match="no batch was taken"):
        desk.admission.publish(1)
    desk.submit(*desk.leases("a", 4))
    desk.admission.take()
    with pytest.raises(ValueError, match="can't follow"):
        desk.admission.publish(2)
