import ast

import pytest

from hexcloud.runtime.problems import Gym
from hexcloud.runtime.verifiers.gym import verify


@pytest.mark.parametrize("name", ["chain_sum", "letter_counting", "knights_knaves", "number_sorting"])
def test_a_right_answer_earns_one_bare_or_in_tags(name: str) -> None:
    problem = Gym(name).problem(5, 3)
    right = ast.literal_eval(problem.answer)[1]["answer"]
    assert verify(f" {right}\n", problem.answer) == 1.0
    assert verify(f"first <answer>no</answer>, then <answer>{right}</answer>", problem.answer) == 1.0


def test_a_wrong_answer_earns_what_reasoning_gym_says() -> None:
    assert verify("<answer>999999</answer>", Gym("chain_sum").problem(5, 3).answer) < 0.1
