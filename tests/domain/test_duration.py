import pytest

from hexcloud.domain.duration import parse_duration
from hexcloud.domain.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7200), ("1.5 H", 5400), ("1d", 86400), (".5m", 30)]
)
def test_a_number_with_a_unit_is_a_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "ten minutes", "-5m", "0s", "10mm", "1h30m", "infh"])
def test_anything_else_is_named_in_the_error(text: str) -> None:
    with pytest.raises(ConfigError, match="is not an interval") as caught:
        parse_duration(text)
    assert repr(text) in str(caught.value)
