from collections.abc import Callable

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.plan import Role
from hexcloud.node.link_cap import link_cap


def test_an_emulated_link_is_capped_and_a_real_one_is_not(make_spec: Callable[[Role], NodeSpec]) -> None:
    spec = make_spec(Role.ROLLOUT)
    cap = link_cap(spec)
    assert (cap.bucket.bytes_per_s, cap.latency_s) == (8e6, 0.001)
    real = link_cap(spec.model_copy(update={"emulation": None}))
    assert (real.bucket.bytes_per_s, real.latency_s) == (None, 0.0)
