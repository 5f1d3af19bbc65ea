import pytest

from hexcloud.cli.ages import age


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s"), (59, "59 s"), (150, "2 min"), (26 * 3600, "26 h"), (3 * 86400, "3 days"), (800 * 86400, "2 years")],
)
def test_an_age_is_said_in_the_unit_a_reader_wants(seconds: float, text: str) -> None:
    assert age(seconds) == text
