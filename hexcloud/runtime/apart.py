"""apart: a blocking call in a thread of its own, which never holds up the process's end as one of a pool would."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

Result = TypeVar("Result")


async def apart(function: Callable[[], Result]) -> Result:
    """Return what a function returns, or raise what it raises. Cancelled, the call goes on and nobody hears of it."""
    loop = asyncio.get_running_loop()
    heard: asyncio.Future[Result] = loop.create_future()

    def settle(result: Result | None, error: Exception | None) -> None:
        if heard.done():
            return
        if error is not None:
            heard.set_exception(error)
        else:
            heard.set_result(result)  # type: ignore[arg-type]

    def call() -> None:
        result, fault = None, None
        try:
            result = function()
        except Exception as error:  # noqa: BLE001 - whoever waits hears it
            fault = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, result, fault)

    threading.Thread(target=call, daemon=True).start()
    return await heard
