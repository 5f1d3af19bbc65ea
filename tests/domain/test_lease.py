from hexcloud.domain.lease import GroupId, Lease, LeaseId
from hexcloud.domain.response import Response


def test_a_lease_tells_what_was_begun_before() -> None:
    lease = Lease(
        id=LeaseId("1.0"),
        group=GroupId(1),
        index=0,
        worker="a",
        attempt=0,
        deadline_s=60.0,
        epoch=0,
        version=1,
        prompt_ids=(1,),
        max_new_tokens=4,
    )
    assert lease.begun == Response()
    begun = lease.model_copy(update={"prefix": (7,), "prefix_logprobs": (-0.1,), "prefix_versions": (1,)})
    assert begun.begun == Response((7,), (-0.1,), (1,))
