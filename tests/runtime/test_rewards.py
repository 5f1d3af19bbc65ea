from hexcloud.runtime.rewards import reward
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
