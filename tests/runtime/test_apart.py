import asyncio
import subprocess
import sys
import threading

import pytest

from hexcloud.runtime.apart import apart


def test_what_the_call_returns_or_raises_is_heard() -> None:
    async def scene() -> None:
        assert await apart(lambda: 7) == 7
        with pytest.raises(OSError, match="gone"):
            await apart(lambda: _fail())

    asyncio.run(scene())


def _fail() -> None:
    raise OSError("gone")


def test_a_cancelled_call_goes_on_and_disturbs_nobody() -> None:
    gate, ended = threading.Event(), threading.Event()

    def through() -> None:
        gate.wait()
        ended.set()

    async def scene() -> None:
        waiting = asyncio.create_task(apart(through))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        gate.set()
        assert await asyncio.to_thread(ended.wait, 5)
        await asyncio.sleep(0.05)

    asyncio.run(scene())


def test_a_call_that_hangs_does_not_hold_up_the_end_of_the_process() -> None:
    program = (
        "import asyncio, threading\nfrom hexcloud.runtime.apart import apart\n"
        "async def main():\n"
        "    try:\n        await asyncio.wait_for(apart(threading.Event().wait), 0.1)\n"
        "    except TimeoutError:\n        print('over')\n"
        "asyncio.run(main())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "over\n"
