import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from hexcloud.domain.errors import EngineError
from hexcloud.runtime.delta_code import BLOCK_WORDS, Words, encode, patch

ROWS = arrays.arrays(np.uint16, st.integers(0, 600))


def decode(base: Words, code: bytes) -> Words:
    new = base.copy()
    patch(new, code)
    return new


def changed(base: Words, share: float, most: int, seed: int) -> Words:
    """Return a row in which about this share differs by at most so many steps either way."""
    rng = np.random.default_rng(seed)
    new = base.copy()
    places = np.flatnonzero(rng.random(len(base)) < share)
    steps = rng.integers(1, most + 1, len(places)) * rng.choice([-1, 1], len(places))
    new[places] += steps.astype(np.int64).astype(np.uint16)
    return new


@given(
    base=ROWS, seed=st.integers(0, 100), share=st.sampled_from([0.0, 0.003, 0.1, 0.5, 1.0]), most=st.integers(1, 40_000)
)
def test_what_is_decoded_is_what_was_encoded(base: Words, seed: int, share: float, most: int) -> None:
    new = changed(base, share, most, seed)
    assert decode(base, encode(base, new)).tolist() == new.tolist()
    assert decode(new, encode(new, base)).tolist() == base.tolist()


@given(pair=st.integers(0, 50).flatmap(lambda n: st.tuples(*[arrays.arrays(np.uint16, n)] * 2)))
def test_any_row_can_become_any_other(pair: tuple[Words, Words]) -> None:
    assert decode(pair[0], encode(*pair)).tolist() == pair[1].tolist()


def test_rare_changes_far_apart_are_found_again() -> None:
    base = np.zeros(BLOCK_WORDS, np.uint16)
    for places in ([0], [BLOCK_WORDS - 1], [255], [254], [65_535], [65_534], [0, 255, 511, 250_000]):
        new = base.copy()
        new[places] = 7
        code = encode(base, new)
        assert np.array_equal(decode(base, code), new)
        assert len(code) < 100


@settings(deadline=None, max_examples=25)
@given(power=st.floats(-5, -0.15), most=st.sampled_from([1, 3, 100, 30_000]), seed=st.integers(0, 10))
def test_a_delta_is_at_most_1_6_times_what_positions_and_raw_values_need(power: float, most: int, seed: int) -> None:
    base = np.random.default_rng(seed).integers(0, 1 << 16, BLOCK_WORDS).astype(np.uint16)
    new = changed(base, 10**power, most, seed)
    count = int((base != new).sum())
    share = count / BLOCK_WORDS
    entropy = -share * math.log2(share) - (1 - share) * math.log2(1 - share) if count else 0.0
    assert len(encode(base, new)) <= 1.6 * (BLOCK_WORDS * entropy + 16 * count) / 8 + 14


@settings(deadline=None)
@given(data=st.data(), share=st.sampled_from([0.01, 0.3, 1.0]), most=st.sampled_from([2, 20_000]))
def test_a_damaged_block_is_an_error_or_another_row_but_never_more(
    data: st.DataObject, share: float, most: int
) -> None:
    base = np.arange(500, dtype=np.uint16)
    code = bytearray(encode(base, changed(base, share, most, 1)))
    for _ in range(data.draw(st.integers(1, 4))):
        code[data.draw(st.integers(0, len(code) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(code)))
    for damaged in (bytes(code), bytes(code[:cut])):
        try:
            assert len(decode(base, damaged)) == len(base)
        except EngineError as error:
            assert "delta" in str(error)


def test_a_block_of_another_row_is_refused() -> None:
    base = np.zeros(100, np.uint16)
    code = encode(base, np.arange(100, dtype=np.uint16))
    with pytest.raises(EngineError, match="delta"):
        decode(base[:50], code)
