import pytest

from hexcloud.domain.offer import OfferId
from hexcloud.domain.stay import Stay


@pytest.mark.parametrize(("ready_at_s", "hours"), [(None, 0.0), (360.0, 0.9), (7200.0, 0.0)])
def test_a_machine_works_from_its_first_heartbeat(ready_at_s: float | None, hours: float) -> None:
    stay = Stay(offer_id=OfferId("aws/r/a/big/spot"), asked_at_s=0.0, ready_at_s=ready_at_s, until_s=3600.0)
    assert stay.worked_h == pytest.approx(hours)
