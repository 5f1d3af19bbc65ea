from collections.abc import Callable

from hexcloud.appraise.row import Row
from hexcloud.domain.offer import Tenure, offer_id

MakeRow = Callable[..., Row]


def test_a_row_is_named_as_its_offer_will_be(row: MakeRow) -> None:
    assert row(zone=None).id == offer_id("aws", "us-east-1", None, "big", Tenure.ON_DEMAND)
    assert row(tenure="spot").id == offer_id("aws", "us-east-1", "a", "big", Tenure.SPOT)


def test_a_row_of_an_unknown_tenure_still_has_a_name(row: MakeRow) -> None:
    assert row(tenure="loan").id.endswith("/loan")
