import pytest

from hexcloud.runtime.verifiers.math import verify


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("So it is $\\boxed{\\frac{1}{2}}$.", "0.5"),
        ("The answer is \\boxed{42}.", "42"),
        ("\\boxed{x^2 + 2x + 1}", "$(x+1)^2$"),
        ("half of it is 21, so the answer is 42", "She has 21 * 2 = 42 apples.\n#### 42"),
        ("$\\{1, 2\\}$", "$\\{2, 1\\}$"),
    ],
)
def test_the_same_mathematics_earns_one(response: str, answer: str) -> None:
    assert verify(response, answer) == 1.0


@pytest.mark.parametrize("response", ["\\boxed{43}", "no number at all", ""])
def test_another_answer_or_none_earns_nothing(response: str) -> None:
    assert verify(response, "42") == 0.0


def test_an_answer_that_is_no_mathematics_is_an_error_of_the_data() -> None:
    with pytest.raises(ValueError, match="is no mathematics"):
        verify("\\boxed{42}", "")
