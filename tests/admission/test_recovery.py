"""Admission after a recovery: what abandoned versions made is dropped, the rest is kept, nothing is counted twice."""

import pytest

from hexcloud.admission.admission import Admission, Granted, Receipt
from hexcloud.domain.response import Response
from tests.admission.desk import Desk, sample_of, terms


def test_recovery_drops_what_abandoned_versions_made_and_keeps_the_rest() -> None:
    desk = Desk(terms(steps=1, size=2, eta=3))
    old = desk.leases("a", 2)
    desk.submit(old[0])
    desk.step()
    new = desk.leases("a", 2)
    desk.submit(new[0])
    desk.recover(version=0)
    assert desk.admission.dropped_samples == 2
    assert desk.admission.outstanding == 2
    assert desk.admission.submit("a", sample_of(old[1])) is Receipt.LATE
    (again,) = desk.leases("a", 1)
    assert (again.id, again.attempt, again.epoch) == (old[1].id, 1, 1)
    desk.submit(again)
    assert [group.id for group in desk.admission.take()] == [old[0].group]


def test_capacity_does_not_inflate_after_a_recovery() -> None:
    desk = Desk(terms(steps=1, size=2, eta=1))
    for _ in range(3):
        desk.step()
    desk.recover(version=0)
    assert len(desk.ask("a", 100).leases) == 4


def test_groups_kept_by_a_recovery_are_due_by_the_restored_version() -> None:
    desk = Desk(terms(steps=1, size=2, eta=1))
    desk.step()
    kept = desk.leases("a", 2, version=0)
    desk.recover(version=0)
    again = desk.leases("a", 2, version=0)
    assert [held.id for held in again] == [held.id for held in kept]


def test_the_batch_in_training_when_the_trainer_died_is_dropped() -> None:
    desk = Desk(terms(steps=1, size=2, eta=1))
    desk.step()
    desk.submit(*desk.leases("a", 2))
    desk.admission.take()
    desk.recover(version=0)
    assert not desk.admission.is_training
    assert desk.admission.outstanding == 0
    assert desk.admission.dropped_samples == 2


def test_a_coordinator_that_starts_again_gives_no_lease_id_a_second_time() -> None:
    desk = Desk(terms())
    before = desk.leases("a", 4)
    desk.admission = Admission(terms(), epoch=1)
    assert not {lease.id for lease in before} & {lease.id for lease in desk.leases("a", 4)}


def test_after_a_recovery_nothing_is_granted_before_all_workers_have_reported() -> None:
    desk = Desk(terms())
    desk.admission.join("b", 4)
    (lease,) = desk.leases("a", 1)
    desk.admission.recover(epoch=1, version=0, now_s=0.0)
    assert desk.ask("a", 1) == Granted()
    assert desk.admission.hear("b", 0, ()) == (), "an answer of the old epoch is no report"
    assert desk.ask("a", 1) == Granted()
    assert desk.admission.hear("a", 1, ((lease.id, 0),)) == (lease.id,)
    desk.admission.hear("b", 1, ())
    assert len(desk.ask("a", 1).leases) == 1


def test_after_the_grace_period_silent_workers_no_longer_hold_up_grants() -> None:
    desk = Desk(terms())
    desk.admission.join("silent", 4)
    desk.admission.recover(epoch=1, version=0, now_s=0.0)
    assert desk.ask("a", 1) == Granted()
    desk.now_s = 5.0
    assert len(desk.ask("a", 1).leases) == 1


@pytest.mark.parametrize(("epoch", "version"), [(0, 0), (1, 1)])
def test_a_recovery_needs_a_higher_epoch_and_a_version_that_was_published(epoch: int, version: int) -> None:
    with pytest.raises(ValueError, match="no recovery"):
        Desk(terms()).admission.recover(epoch, version, now_s=0.0)


def test_recovery_forgets_parked_tokens_of_abandoned_versions() -> None:
    desk = Desk(terms(steps=1, size=2, eta=3))
    lease, _ = desk.leases("a", 2)
    desk.step()
    desk.admission.commit(lease, Response((7, 8), (-0.1, -0.1), (0, 1)), now_s=0.0)
    desk.recover(version=0)
    assert desk.leases("a", 1)[0].prefix == ()
