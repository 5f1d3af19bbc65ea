import ast
import tempfile
import threading
from pathlib import Path

import pytest

from hexcloud.domain.errors import ConfigError
from hexcloud.domain.sample import MAX_REWARD
from hexcloud.domain.task import TaskSpec
from hexcloud.runtime.open_task import open_task
from hexcloud.runtime.rewards import Scorer, reward, reward_of
from hexcloud.runtime.tasks import BOS_ID, EOS_ID, SORT_DIGITS


def test_the_exact_answer_with_eos_earns_one() -> None:
    assert reward(SORT_DIGITS, (*SORT_DIGITS.encode("1357"), EOS_ID), "1357") == 1.0


def test_a_wrong_or_unfinished_answer_earns_nothing() -> None:
    right = SORT_DIGITS.encode("1357")
    assert reward(SORT_DIGITS, right, "1357") == 0.0
    assert reward(SORT_DIGITS, (*reversed(right), EOS_ID), "1357") == 0.0
    assert reward(SORT_DIGITS, (EOS_ID,), "1357") == 0.0


def test_ids_that_have_no_text_do_not_slip_through() -> None:
    assert reward(SORT_DIGITS, (BOS_ID, *SORT_DIGITS.encode("1357"), EOS_ID), "1357") == 0.0
    assert reward(SORT_DIGITS, (*SORT_DIGITS.encode("1357"), EOS_ID, EOS_ID), "1357") == 0.0


def test_the_kind_of_reward_follows_from_the_task_unless_it_is_said() -> None:
    assert reward_of(TaskSpec()) == reward_of(TaskSpec(name="jsonl:x")) == "exact"
    assert reward_of(TaskSpec(name="reasoning_gym:gcd")) == "gym"
    assert reward_of(TaskSpec(name="reasoning_gym:gcd", reward="exact")) == "exact"
    with pytest.raises(ConfigError, match="'exacts' is unknown; there are exact, math, gym, python:FILE"):
        reward_of(TaskSpec(reward="exacts"))
    with pytest.raises(ConfigError, match="reasoning_gym"):
        reward_of(TaskSpec(reward="gym"))


def ids(text: str) -> tuple[int, ...]:
    return (*SORT_DIGITS.encode(text), EOS_ID)


@pytest.fixture
def verifier(tmp_path: Path) -> TaskSpec:
    """A verifier that fails in several ways."""
    file = tmp_path / "verify.py"
    file.write_text(
        "import os\n"
        "seen = 0\n"
        "def verify(response, answer):\n"
        "    global seen\n"
        "    seen += 1\n"
        "    if response == '0': raise ValueError('zero')\n"
        "    if response == '9': os._exit(3)\n"
        "    return (response == answer) / seen\n"
    )
    return TaskSpec(reward=f"python:{file}")


def test_a_users_verifier_starts_anew_for_every_response_and_its_faults_count_as_nothing(verifier: TaskSpec) -> None:
    scorer = Scorer(SORT_DIGITS, verifier)
    responses = [(ids("1"), "1"), (ids("2"), "3"), (ids("0"), "0"), (ids("9"), "9"), (ids("4"), "4"), ((5,), "2")]
    assert scorer.score(responses) == [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    assert scorer.faults == {"ValueError": 1, "ended with code 3": 1}
    scorer.close()


def test_a_machine_without_room_for_a_verifier_costs_rewards_and_not_the_node(
    verifier: TaskSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = Scorer(SORT_DIGITS, verifier)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    assert scorer.score([(ids("1"), "1"), (ids("1"), "1")]) in ([1.0, 0.0], [0.0, 1.0], [0.0, 0.0])
    assert scorer.faults["FileNotFoundError"] >= 1
    monkeypatch.undo()
    assert scorer.score([(ids("1"), "1")]) == [1.0]
    scorer.close()


def test_an_absurd_reward_is_the_verifiers_fault_and_not_the_machines(tmp_path: Path) -> None:
    file = tmp_path / "verify.py"
    file.write_text("def verify(response, answer): return {'1': 1e200, '2': -2e6, '3': 1e6}[response]")
    scorer = Scorer(SORT_DIGITS, TaskSpec(reward=f"python:{file}"))
    assert scorer.score([(ids(text), "") for text in "123"]) == [0.0, 0.0, MAX_REWARD]
    assert sum(scorer.faults.values()) == 2
    scorer.close()


def test_several_threads_may_ask_at_once(verifier: TaskSpec) -> None:
    scorer = Scorer(SORT_DIGITS, verifier)
    found: list[list[float]] = []
    threads = [threading.Thread(target=lambda: found.append(scorer.score([(ids("1"), "1")] * 2))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[1.0, 1.0]] * 3
    scorer.close()


def test_a_verifier_that_cannot_be_used_is_found_before_any_response(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        Scorer(SORT_DIGITS, TaskSpec(reward=f"python:{tmp_path}/none.py"))
    (tmp_path / "broken.py").write_text("import no_such_module")
    with pytest.raises(ConfigError, match="no_such_module"):
        Scorer(SORT_DIGITS, TaskSpec(reward=f"python:{tmp_path}/broken.py"))


def test_reasoning_gym_and_math_verify_score_in_their_rooms(word_folder: Path) -> None:
    spec = TaskSpec(name="reasoning_gym:chain_sum", max_prompt_tokens=10_000)
    task = open_task(spec, str(word_folder))
    answer = task.prompt(0, 0)[1]
    spoken = task.response  # digits are words of this vocabulary, so "- 4" is not: only what it can say is scored
    scorer = Scorer(task, spec)
    assert spoken((9, 1)) == "0"
    right = ast.literal_eval(answer)[1]["answer"]
    assert scorer.score([((9, 1), answer)]) == [pytest.approx(1.0 if right == "0" else 0.01, abs=0.01)]
    assert not scorer.faults
    scorer.close()
    math = Scorer(SORT_DIGITS, TaskSpec(reward="math"))
    responses = [(ids("12"), "12"), (ids("3+9"), "12"), (ids("13"), "12"), (ids("1"), "")]
    assert math.score(responses) == [1.0, 1.0, 0.0, 0.0]
    assert math.faults == {"ValueError": 1}
    math.close()
