from datetime import UTC, datetime

import pytest

from hexcloud.domain.calibration import Calibration, Efficiency
from hexcloud.domain.offer import Offer, OfferId, Tenure
from hexcloud.estimate.risk import availability, gang_loss_share, interruptions_per_hour, startup_s, startup_usd


def offer(tenure: Tenure, **learned: float) -> Offer:
    return Offer(
        id=OfferId(f"acme/r/a/big/{tenure.value}"),
        cloud="acme",
        region="r",
        zone="a",
        instance_type="big",
        tenure=tenure,
        gpu="H100",
        gpu_count=8,
        vcpus=96,
        memory_gib=512,
        network_gb_per_s=10,
        usd_per_hour=12.0,
        as_of=datetime(2026, 7, 1, tzinfo=UTC),
        source="test",
    ).model_copy(update=learned)


@pytest.fixture
def calibration() -> Calibration:
    row = Efficiency(gpu="*", bandwidth=0.7, compute=0.5, mfu=0.4, source="test")
    return Calibration(
        efficiencies=(row,), startup_s=360, restart_s=360, spot_interruptions_per_hour=0.1, source="test"
    )


def test_on_demand_machines_stay(calibration: Calibration) -> None:
    assert interruptions_per_hour(offer(Tenure.ON_DEMAND), calibration) == 0
    assert availability(offer(Tenure.ON_DEMAND), calibration) == 1
    assert gang_loss_share(offer(Tenure.ON_DEMAND), 8, calibration) == 0


def test_spot_slot_is_empty_while_its_successor_starts(calibration: Calibration) -> None:
    assert availability(offer(Tenure.SPOT), calibration) == pytest.approx(1 / 1.01)


def test_a_gang_is_lost_as_often_as_any_of_its_nodes(calibration: Calibration) -> None:
    one, four = (gang_loss_share(offer(Tenure.SPOT), nodes, calibration) for nodes in (1, 4))
    assert one == pytest.approx(0.1 * 720 / 3600)
    assert four == pytest.approx(4 * one)
    assert gang_loss_share(offer(Tenure.SPOT), 10_000, calibration) == 1


def test_starting_is_paid_like_working(calibration: Calibration) -> None:
    assert startup_usd(offer(Tenure.SPOT), calibration) == pytest.approx(1.2)


def test_what_was_learned_of_a_pool_goes_before_the_prior(calibration: Calibration) -> None:
    known = offer(Tenure.SPOT, interruptions_per_hour=0.5, startup_s=720.0)
    assert interruptions_per_hour(known, calibration) == 0.5
    assert startup_s(known, calibration) == 720.0
    assert startup_s(offer(Tenure.SPOT), calibration) == 360.0
    assert availability(known, calibration) == pytest.approx(1 / 1.1)
    assert gang_loss_share(known, 2, calibration) == pytest.approx(2 * 0.5 * 1080 / 3600)
    assert startup_usd(known, calibration) == pytest.approx(2.4)


def test_a_pool_that_never_lost_a_machine_is_not_one_of_which_nothing_is_known(calibration: Calibration) -> None:
    safe = offer(Tenure.SPOT, interruptions_per_hour=0.0, startup_s=0.0)
    assert interruptions_per_hour(safe, calibration) == 0.0
    assert availability(safe, calibration) == 1.0


def test_machines_on_demand_stay_whatever_was_learned(calibration: Calibration) -> None:
    assert interruptions_per_hour(offer(Tenure.ON_DEMAND, interruptions_per_hour=0.5), calibration) == 0.0
