"""Targets read as users write them."""

import pytest

from hexcloud.domain.errors import ConfigError
from hexcloud.domain.target import parse_target
from hexcloud.domain.workload import Workload


@pytest.mark.parametrize(
    ("text", "samples_per_s"),
    [
        ("20k", 10.0),
        ("20k tok/s", 10.0),
        ("2000", 1.0),
        ("1e6", 500.0),
        ("3 samples/s", 3.0),
        ("180 samples/min", 3.0),
        ("5 steps/min", 5 * 256 / 60),
        ("1 step/h", 256 / 3600),
        ("1.5M tokens/s", 750.0),
    ],
)
def test_target_becomes_samples_per_second(text: str, samples_per_s: float, workload: Workload) -> None:
    assert parse_target(text, workload) == pytest.approx(samples_per_s)


@pytest.mark.parametrize("text", ["", "fast", "-5", "0", "20k furlongs", "1e999", "nan", "5/fortnight"])
def test_nonsense_is_refused_with_the_ways_to_write_it(text: str, workload: Workload) -> None:
    with pytest.raises(ConfigError, match="target"):
        parse_target(text, workload)
