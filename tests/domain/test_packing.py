from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from hexcloud.domain.packing import LEAST_WIDTH, deal, layouts, split, width_of

LENGTHS = st.lists(st.integers(1, 180), min_size=1, max_size=40)


@dataclass(frozen=True)
class Numbered:
    number: int
    length: int


def samples_of(lengths: list[int]) -> list[Numbered]:
    return [Numbered(*pair) for pair in enumerate(lengths)]


@settings(deadline=None)
@given(lengths=LENGTHS, budget=st.integers(1, 2000))
def test_every_sample_is_in_one_pass_and_passes_keep_the_budget(lengths: list[int], budget: int) -> None:
    samples = samples_of(lengths)
    passes = layouts(samples, budget)
    assert sorted(one.number for rows in passes for row in rows for one in row) == list(range(len(samples)))
    for rows in passes:
        assert len(rows) * width_of(rows) <= budget or len(rows) == 1
        assert width_of(rows) <= max(LEAST_WIDTH, max(one.length for row in rows for one in row))


@settings(deadline=None)
@given(lengths=LENGTHS, ranks=st.integers(1, 60))
def test_each_sample_goes_longest_first_to_the_rank_with_the_fewest_tokens(lengths: list[int], ranks: int) -> None:
    samples = samples_of(lengths)
    wanted: list[list[Numbered]] = [[] for _ in range(ranks)]
    for one in sorted(samples, key=lambda one: -one.length):
        min(wanted, key=lambda hand: sum(other.length for other in hand)).append(one)
    assert deal(samples, ranks) == wanted


@given(lengths=LENGTHS, updates=st.integers(1, 60))
def test_minibatches_are_even_and_none_is_empty(lengths: list[int], updates: int) -> None:
    samples = samples_of(lengths)
    parts = split(samples, updates)
    assert [one for part in parts for one in part] == samples
    assert len(parts) <= updates and all(len(part) == len(parts[0]) for part in parts[:-1])
    assert 0 < len(parts[-1]) <= len(parts[0])
