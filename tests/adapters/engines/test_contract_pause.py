"""How every engine is interrupted: abort with what there is, three ways to pause, and what is held meanwhile."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from hexcloud.domain.generation import FinishKind, PauseMode
from tests.adapters.engines.contract import LONG, STEP_S, Answer, Subject, ask


def test_an_aborted_request_keeps_its_tokens(subject: Subject, flying: Answer) -> None:
    subject.client.abort(("no-such-request", "flying"))
    (made,) = flying.result(timeout=10)
    assert made.finish is FinishKind.ABORT
    assert 0 < len(made.tokens) < LONG
    subject.assert_true((1, 5, 6), made)


def test_one_of_a_batch_is_aborted_and_the_others_end_as_they_would(subject: Subject) -> None:
    subject.slow_down(STEP_S)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(subject.client.generate, (ask("one", max_new_tokens=40), ask("two", max_new_tokens=40)))
        while subject.running < 2:
            time.sleep(0.02)
        time.sleep(5 * STEP_S)
        subject.client.abort(("one",))
        one, two = future.result(timeout=30)
    assert (one.finish, two.finish, len(two.tokens)) == (FinishKind.ABORT, FinishKind.LENGTH, 40)
    assert 0 < len(one.tokens) < 40


def test_abort_all_ends_what_runs(subject: Subject, flying: Answer) -> None:
    subject.client.abort_all()
    assert flying.result(timeout=10)[0].finish is FinishKind.ABORT
    assert subject.client.generate((ask("next"),))[0].finish is FinishKind.LENGTH


def test_partial_tokens_are_gone_on_with_elsewhere_as_if_nothing_had_been(subject: Subject, flying: Answer) -> None:
    subject.client.abort(("flying",))
    (partial,) = flying.result(timeout=10)
    subject.slow_down(0)
    prompt = (1, 5, 6, *partial.tokens)
    (rest,) = subject.client.generate((ask("rest", prompt, max_new_tokens=LONG - len(partial.tokens)),))
    assert len(partial.tokens) + len(rest.tokens) == LONG
    subject.assert_true(prompt, rest)


def test_a_pause_in_abort_mode_ends_what_runs_and_holds_what_comes(subject: Subject, flying: Answer) -> None:
    subject.client.pause(PauseMode.ABORT)
    assert flying.result(timeout=10)[0].finish is FinishKind.ABORT
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(subject.client.generate, (ask("held", max_new_tokens=2),))
        time.sleep(0.3)
        assert not held.done()
        subject.client.resume()
        assert held.result(timeout=10)[0].finish is FinishKind.LENGTH


@pytest.mark.parametrize("mode", [PauseMode.RETRACT, PauseMode.IN_PLACE])
def test_paused_requests_stand_still_and_then_go_on(subject: Subject, flying: Answer, mode: PauseMode) -> None:
    subject.client.pause(mode)
    subject.slow_down(0)
    time.sleep(1.0)  # at full speed all its tokens would take less
    assert not flying.done()
    subject.client.resume()
    (made,) = flying.result(timeout=30)
    assert (len(made.tokens), made.finish) == (LONG, FinishKind.LENGTH)
    subject.assert_true((1, 5, 6), made)


def test_a_paused_engine_is_healthy_and_not_ready(subject: Subject) -> None:
    subject.client.pause(PauseMode.RETRACT)
    assert subject.client.is_healthy()
    assert not subject.client.is_ready()
    subject.client.resume()
    assert subject.client.is_ready()
