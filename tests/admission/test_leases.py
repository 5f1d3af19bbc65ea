import pytest

from hexcloud.admission.leases import LeaseBook
from hexcloud.domain.lease import GroupId, Lease, LeaseEnd, LeaseId


def lease(name: str = "0.0", worker: str = "a", attempt: int = 0, deadline_s: float = 10.0) -> Lease:
    return Lease(
        id=LeaseId(name),
        group=GroupId(0),
        index=0,
        worker=worker,
        attempt=attempt,
        deadline_s=deadline_s,
        epoch=0,
        version=0,
        prompt_ids=(1,),
        max_new_tokens=4,
    )


def test_the_fence_lets_only_the_open_attempt_of_its_worker_through() -> None:
    book = LeaseBook()
    book.grant(lease(attempt=1))
    assert book.held(LeaseId("0.0"), 1, "a") is not None
    assert book.held(LeaseId("0.0"), 0, "a") is None
    assert book.held(LeaseId("0.0"), 2, "a") is None
    assert book.held(LeaseId("0.0"), 1, "b") is None
    assert book.held(LeaseId("0.1"), 1, "a") is None


def test_a_sample_is_leased_to_one_worker_at_a_time() -> None:
    book = LeaseBook()
    book.grant(lease())
    with pytest.raises(ValueError, match="already open"):
        book.grant(lease(worker="b", attempt=1))


def test_a_lease_ends_once() -> None:
    book = LeaseBook()
    book.grant(lease())
    book.end(lease(), LeaseEnd.SAMPLE)
    with pytest.raises(KeyError):
        book.end(lease(), LeaseEnd.LOST)
    assert book.ended == {LeaseEnd.SAMPLE: 1}
    assert book.granted == 1


def test_leases_are_counted_per_worker() -> None:
    book = LeaseBook()
    book.grant(lease("0.0"))
    book.grant(lease("0.1"))
    book.grant(lease("0.2", worker="b"))
    assert (book.count("a"), book.count("b"), book.count("c"), len(book)) == (2, 1, 0, 3)
    assert [held.id for held in book.of("a")] == ["0.0", "0.1"]


def test_a_lease_expires_at_its_deadline() -> None:
    book = LeaseBook()
    book.grant(lease(deadline_s=10.0))
    assert book.expired(9.9) == ()
    assert [late.id for late in book.expired(10.0)] == ["0.0"]


def test_a_renewed_lease_expires_at_its_new_deadline() -> None:
    book = LeaseBook()
    book.grant(lease(deadline_s=10.0))
    book.renew(lease(), 20.0)
    assert book.expired(15.0) == ()
    assert [late.id for late in book.expired(20.0)] == ["0.0"]


def test_an_ended_lease_does_not_expire_and_nor_does_the_next_attempt_with_it() -> None:
    book = LeaseBook()
    book.grant(lease(deadline_s=10.0))
    book.end(lease(), LeaseEnd.LOST)
    book.grant(lease(attempt=1, deadline_s=30.0))
    assert book.expired(10.0) == ()
