import pytest

from hexcloud.domain.market import EgressPrice, LinkScope, Network
from hexcloud.domain.workload import Workload
from hexcloud.estimate.transfer import (
    delta_bytes,
    egress_usd,
    egress_usd_per_gb,
    transfer_s,
)


def test_one_copy_of_7b_takes_ten_seconds_at_the_cross_link_of_areal_hex(workload: Workload) -> None:
    """arXiv 2511.00796: 1.5 GB/s between H800 and H20; line rate is 10.2 s, 58 s were measured."""
    assert transfer_s(workload.version_bytes, 1.5) == pytest.approx(10.2, abs=0.1)


def test_what_is_published_in_fp32_travels_twice_as_long(workload: Workload) -> None:
    whole = workload.model_copy(update={"published_bytes_per_param": 4})
    assert whole.version_bytes == 2 * workload.version_bytes == 4 * workload.model.params


def test_delta_of_two_percent_is_a_sixteenth_of_a_copy(workload: Workload) -> None:
    assert delta_bytes(workload) / workload.version_bytes == pytest.approx(0.06)


def test_delta_is_never_larger_than_a_copy(workload: Workload) -> None:
    assert delta_bytes(workload, changed_share=1.0) == workload.version_bytes


def test_latency_counts_once() -> None:
    assert transfer_s(1e9, 1.0, latency_ms=100) == pytest.approx(1.1)


def test_egress_is_billed_by_cloud_and_distance() -> None:
    network = Network(
        links=(), egress=(EgressPrice(cloud="acme", scope=LinkScope.WORLD, usd_per_gb=0.09, source="test"),)
    )
    assert egress_usd(2e9, egress_usd_per_gb(network, "acme", LinkScope.WORLD)) == pytest.approx(0.18)
    assert egress_usd_per_gb(network, "other", LinkScope.WORLD) == 0.0
