"""Patience: work of each rank on its own of which nobody knows how long it takes, such as writing to a slow disk.

A rank that waits longer than TIMEOUT for another ends, as that one is gone. So the work goes on in a thread, and the
ranks meet every few seconds until the last is done: nothing slow ends them, and one that is lost is missed as soon as
ever. A timeout that grows with bytes would need a rate that no storage promises, and would notice a loss later.
"""

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from typing import TypeVar

import torch

from hexcloud.domain.errors import EngineError
from hexcloud.runtime.trainer_ranks import Ranks

MEET_S = 5.0
"""Between two meetings; who is done comes at once, so that nobody waits for the end longer than needed."""
_Result = TypeVar("_Result")


def together(ranks: Ranks, work: Callable[[], _Result]) -> _Result:
    """Do this rank's part, whatever it is, and return what it gave once all ranks have done theirs. All call it.

    The work may send to and receive from other ranks, but do nothing that takes all of them. Raises what it raised, and
    EngineError where another rank's did.
    """
    if ranks.size == 1:
        return work()
    own = _begun(ranks, work)
    while True:
        wait([own], MEET_S)
        has_failed = own.done() and own.exception() is not None
        working, failed = ranks.sum(torch.tensor([not own.done(), has_failed], dtype=torch.float32)).tolist()
        if failed and not has_failed:
            raise EngineError("another rank could not do its part of a common work; its own log says why")
        if has_failed or not working:
            return own.result()


def nothing() -> None:
    """Be the part of a rank that has none."""


def _begun(ranks: Ranks, work: Callable[[], _Result]) -> "Future[_Result]":
    """Start the work in a thread that keeps no process alive."""
    future: Future[_Result] = Future()
    threads = torch.get_num_threads()

    def run() -> None:
        torch.set_num_threads(threads)  # each thread has its own, and its own GPU
        if ranks.device != "cpu":
            torch.cuda.set_device(ranks.device)
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            future.set_exception(error)

    Thread(target=run, name="patience", daemon=True).start()
    return future
