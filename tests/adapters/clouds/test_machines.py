"""What the machines of every cloud have in common."""

import threading

import pytest

from hexcloud.adapters.clouds.machines import Answer, carries, each
from hexcloud.domain.errors import RateLimitError


def test_places_are_asked_at_once_and_answer_in_order() -> None:
    all_there = threading.Barrier(3, timeout=5)

    def ask(place: str) -> tuple[str, ...]:
        all_there.wait()
        return (place, place.upper())

    assert each(ask, ["a", "b", "c"]) == (("a", "A", "b", "B", "c", "C"), {})


def test_one_place_that_fails_hides_no_other_but_half_a_list_is_no_list() -> None:
    def ask(place: str) -> tuple[str, ...]:
        if place == "b":
            raise RateLimitError("not now")
        return (place,)

    said, problems = each(ask, ["a", "b", "c"])
    assert said == ("a", "c") and list(problems) == ["b"]
    with pytest.raises(RateLimitError):
        Answer((), problems).whole()
    assert each(ask, []) == ((), {})


def test_an_empty_value_stands_for_any() -> None:
    assert carries({"run": "one", "slot": "x"}, {"run": "one"})
    assert carries({"run": "one"}, {"run": ""})
    assert not carries({"slot": "x"}, {"run": ""})
    assert not carries({"run": "two"}, {"run": "one"})
