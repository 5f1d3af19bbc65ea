from hexcloud.domain.lease import GroupId, Lease, LeaseId
from hexcloud.runtime.rollout_bench import Bench


def a_lease(name: str, attempt: int = 0) -> Lease:
    return Lease(
        id=LeaseId(name),
        group=GroupId(1),
        index=0,
        worker="n",
        attempt=attempt,
        deadline_s=0.0,
        epoch=0,
        version=0,
        prompt_ids=(1,),
        max_new_tokens=4,
    )


def test_slots_are_taken_and_freed() -> None:
    bench = Bench(slots=3)
    leases = [a_lease("1.0"), a_lease("1.1")]
    bench.begin(leases)
    assert (bench.free, bench.running) == (1, 2)
    bench.end(leases, tokens=7)
    assert (bench.free, bench.generated_tokens) == (3, 7)


def test_only_running_leases_can_end_elsewhere_and_only_that_attempt() -> None:
    bench = Bench(slots=4)
    bench.begin([a_lease("1.0")])
    assert bench.mark_ended_elsewhere([LeaseId("1.0"), LeaseId("7.0")]) == (a_lease("1.0"),)
    assert not bench.take_ended_elsewhere(a_lease("1.0", attempt=1))
    assert bench.take_ended_elsewhere(a_lease("1.0"))
    assert not bench.take_ended_elsewhere(a_lease("1.0"))
