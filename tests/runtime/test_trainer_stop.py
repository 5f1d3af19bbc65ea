import os
import signal
from collections.abc import Iterator

import pytest

from hexcloud.runtime.trainer_stop import TerminatedError, Termination


@pytest.fixture
def termination() -> Iterator[Termination]:
    before = signal.getsignal(signal.SIGTERM)
    yield Termination()
    signal.signal(signal.SIGTERM, before)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_interrupts_waiting(termination: Termination) -> None:
    with pytest.raises(TerminatedError), termination.interruptible():
        terminate()
        pytest.fail("the signal came too late")


def test_a_signal_during_work_is_heard_at_the_next_wait(termination: Termination) -> None:
    terminate()
    done = True
    with pytest.raises(TerminatedError), termination.interruptible():
        pytest.fail("the block must not begin")
    assert done


def test_a_second_signal_does_not_interrupt_the_farewell(termination: Termination) -> None:
    with pytest.raises(TerminatedError), termination.interruptible():
        terminate()
    terminate()


def test_without_a_signal_the_block_runs(termination: Termination) -> None:
    with termination.interruptible():
        pass
