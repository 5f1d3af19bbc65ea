import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.errors import ConfigError
from hexcloud.runtime.problems import Gym, Problem, Rows


@given(st.integers(1, 30), st.integers(0, 5), st.integers(0, 3))
def test_every_pass_over_the_rows_has_each_of_them_once(count: int, seed: int, turn: int) -> None:
    rows = Rows(tuple(Problem(str(number), "") for number in range(count)))
    seen = [int(rows.problem(seed, turn * count + place).question) for place in range(count)]
    assert sorted(seen) == list(range(count))


def test_passes_and_seeds_differ_in_order_and_an_index_is_always_the_same_row() -> None:
    rows = Rows(tuple(Problem(str(number), "") for number in range(50)))
    orders = [[rows.problem(seed, turn * 50 + i).question for i in range(50)] for seed in (0, 1) for turn in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4
    assert rows.problem(1, 73) == rows.problem(1, 73)


def test_a_reasoning_gym_problem_follows_from_seed_and_index_and_carries_its_entry() -> None:
    gym = Gym("chain_sum")
    first = [gym.problem(3, index) for index in (0, 1, 999, 1000)]
    assert [Gym("chain_sum").problem(3, index) for index in (0, 1, 999, 1000)] == first
    assert len({problem.question for problem in first}) == 4
    name, entry = ast.literal_eval(first[0].answer)
    assert name == "chain_sum" and entry["question"] == first[0].question


def test_an_entry_of_numpy_texts_is_still_a_literal() -> None:
    ast.literal_eval(Gym("knights_knaves").problem(5, 3).answer)


def test_an_unknown_or_unusable_reasoning_gym_task_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"has no task 'sums'; it has .*chain_sum"):
        Gym("sums")
    with pytest.raises(ConfigError, match="cannot make 'composite'"):
        Gym("composite").problem(0, 0)
