"""Names as tags spell them."""

from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.label import label


def test_what_no_cloud_refuses_stays_and_the_rest_is_coded() -> None:
    assert label("rollout-0.1") == "rollout-0_2e1"
    assert label("Ä") == "_c3_84"


@given(st.text(max_size=20), st.text(max_size=20))
def test_two_names_never_have_one_label(one: str, other: str) -> None:
    assert (label(one) == label(other)) == (one == other)
