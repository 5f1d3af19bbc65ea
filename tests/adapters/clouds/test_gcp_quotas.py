"""Google's limits as quotas."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from hexcloud.adapters.clouds.gcp_answers import QuotaLine
from hexcloud.adapters.clouds.gcp_quotas import quotas_of
from hexcloud.domain.market import Quota

LINES = st.lists(
    st.builds(QuotaLine, st.sampled_from(["NVIDIA_T4_GPUS", "CPUS", ""]) | st.text(), st.floats(), st.floats())
)


def test_gpu_limits_of_a_region_and_the_one_over_all() -> None:
    here = [
        QuotaLine("PREEMPTIBLE_NVIDIA_H100_GPUS", 16, 4),
        QuotaLine("CPUS", 72, 0),
        QuotaLine("IN_USE_ADDRESSES", 8, 0),
    ]
    assert quotas_of("us-east4", here, [QuotaLine("GPUS_ALL_REGIONS", 8, 9), QuotaLine("NETWORKS", 5, 1)]) == (
        Quota(key="gcp/global/GPUS_ALL_REGIONS", left=0, limit=8),
        Quota(key="gcp/us-east4/PREEMPTIBLE_NVIDIA_H100_GPUS", left=12, limit=16),
    )


def test_a_limit_that_does_not_exist_is_no_quota() -> None:
    assert quotas_of("r", [QuotaLine("NVIDIA_T4_GPUS", -1, 0), QuotaLine("NVIDIA_L4_GPUS", math.nan, 0)], []) == ()


@settings(deadline=None)
@given(LINES, LINES)
def test_whatever_comes_is_a_quota_or_nothing(here: list[QuotaLine], over_all: list[QuotaLine]) -> None:
    for quota in quotas_of("r", here, over_all):
        assert quota.limit is not None and 0 <= quota.left <= quota.limit
