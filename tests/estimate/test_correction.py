"""Saturated heartbeats correct an estimate; everything else leaves it alone."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.estimate.correction import LEAST, MAX_APART_S, MEMORY_S, MOST, Beat, Stretch, corrected_speed, stretches

SPEEDS = st.floats(LEAST, MOST)
STRETCHES = st.lists(st.builds(Stretch, st.floats(0.1, 1e4), st.integers(1, 10**9)), max_size=6)


def beats(tokens_per_s: float, count: int = 5) -> list[Beat]:
    """Heartbeats ten seconds apart of a node that is full."""
    full = Beat(at_s=0.0, running=64, slots=64, version=3, generated_tokens=1)
    made = [1 + int(10 * tokens_per_s * index) for index in range(count)]
    return [replace(full, at_s=10.0 * index, generated_tokens=tokens) for index, tokens in enumerate(made)]


def test_time_between_full_heartbeats_of_one_version_counts() -> None:
    assert stretches(beats(100.0)) == (Stretch(10.0, 1000),) * 4


@pytest.mark.parametrize(
    "idle",
    [
        lambda beat: replace(beat, running=57),
        lambda beat: replace(beat, is_paused=True),
        lambda beat: replace(beat, slots=0, running=0),
    ],
    ids=["not full", "paused", "no slots"],
)
def test_a_node_that_waits_or_pauses_says_nothing(idle: Callable[[Beat], Beat]) -> None:
    assert stretches(map(idle, beats(1.0))) == ()
    assert corrected_speed(0.8, stretches(map(idle, beats(1.0))), 100.0) == 0.8


def test_a_change_of_weights_or_a_restart_in_between_says_nothing() -> None:
    old, new = beats(100.0, 2)
    assert stretches([old, replace(new, version=4)]) == ()
    assert stretches([replace(old, generated_tokens=9_000), new]) == ()


def test_time_in_which_no_sample_happened_to_end_counts_like_any_other() -> None:
    one, two = beats(100.0, 2)
    waited = replace(two, generated_tokens=one.generated_tokens)
    assert stretches([one, waited]) == (Stretch(10.0, 0),)


def test_an_engine_that_has_made_nothing_yet_warms_up() -> None:
    old, new = beats(100.0, 2)
    assert stretches([replace(old, generated_tokens=0), new]) == ()


def test_between_heartbeats_that_are_far_apart_a_node_may_have_waited_unseen() -> None:
    old, new = beats(100.0, 2)
    assert stretches([old, replace(new, at_s=old.at_s + MAX_APART_S)]) != ()
    assert stretches([old, replace(new, at_s=old.at_s + MAX_APART_S + 0.1)]) == ()


@given(speed=SPEEDS, found=STRETCHES, estimate=st.floats(1.0, 1e6))
def test_the_correction_is_bounded(speed: float, found: list[Stretch], estimate: float) -> None:
    assert LEAST <= corrected_speed(speed, found, estimate) <= MOST


@given(speed=SPEEDS, found=STRETCHES, estimate=st.floats(1.0, 1e6))
def test_it_moves_towards_what_was_measured_and_never_past_it(
    speed: float, found: list[Stretch], estimate: float
) -> None:
    new = corrected_speed(speed, found, estimate)
    if not found:
        assert new == speed
        return
    measured = sum(one.tokens for one in found) / sum(one.seconds for one in found) / estimate
    low, high = sorted((speed, min(max(measured, LEAST), MOST)))
    assert low * (1 - 1e-9) <= new <= high * (1 + 1e-9)


@given(speed=SPEEDS, seconds=st.floats(1.0, 1e4), faster=st.floats(1.0, 2.0))
def test_a_faster_engine_never_gets_a_lower_speed(speed: float, seconds: float, faster: float) -> None:
    slow, fast = (Stretch(seconds, max(1, int(100 * seconds * rate))) for rate in (1.0, faster))
    assert corrected_speed(speed, [fast], 100.0) >= corrected_speed(speed, [slow], 100.0) * (1 - 1e-9)


def test_an_engine_at_its_estimate_stays_there_and_one_off_it_is_learnt_over_the_memory() -> None:
    assert corrected_speed(1.0, stretches(beats(100.0)), 100.0) == pytest.approx(1.0)
    once = corrected_speed(1.0, [Stretch(MEMORY_S, int(80 * MEMORY_S))], 100.0)
    assert once == pytest.approx(0.8**0.632, abs=1e-3)
    speed = 1.0
    for _ in range(20):
        speed = corrected_speed(speed, [Stretch(MEMORY_S, int(80 * MEMORY_S))], 100.0)
    assert speed == pytest.approx(0.8, abs=1e-3)


def test_many_short_stretches_are_one_long_one() -> None:
    many = corrected_speed(1.0, [Stretch(10.0, 900)] * 30, 100.0)
    assert many == pytest.approx(corrected_speed(1.0, [Stretch(300.0, 27_000)], 100.0))
