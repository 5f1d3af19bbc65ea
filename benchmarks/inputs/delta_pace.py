"""How fast deltas are made and applied, beside copies of the same bytes."""

import hashlib
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from hexcloud.runtime.delta import THREADS, codes
from hexcloud.runtime.delta_code import BLOCK_WORDS, Words, patch

TURNS, COPIES = 7, 25


@dataclass(frozen=True)
class Turn:
    """One encode and apply beside one copy of the same bytes."""

    busy_s: float
    """Of the processor, on the busiest of the threads that work side by side: what else runs here counts for nothing,
    as in `copy_s`, which is one thread's."""
    wall_s: float
    copy_s: float


def there_and_back(old: Words, new: Words) -> tuple[str, float]:
    """Encode all blocks, apply them to copies of the base's; return the digest of the result, hashed beside it.

    And the seconds of the processor: half of what both threads took to encode, and those of the busier one to apply.
    """
    start = time.process_time()
    coded = list(codes(old, new))
    encoded_s, start = (time.process_time() - start) / THREADS, time.thread_time()
    digest, buffers = hashlib.sha256(), deque(np.empty(BLOCK_WORDS, np.uint16) for _ in range(4))
    with ThreadPoolExecutor(1) as pool:
        hashing: deque[Future[None]] = deque()
        for begin, code in zip(range(0, len(new), BLOCK_WORDS), coded, strict=True):
            if len(hashing) == len(buffers):
                hashing.popleft().result()
            block = buffers[0][: len(new) - begin]
            np.copyto(block, old[begin : begin + BLOCK_WORDS])
            patch(block, code)
            hashing.append(pool.submit(digest.update, block.data))
            buffers.rotate(-1)
        hashed_s = pool.submit(time.thread_time).result()
    return digest.hexdigest(), encoded_s + max(hashed_s, time.thread_time() - start)


def turns(old: Words, new: Words) -> list[Turn]:
    """Encode, apply and copy in turns of about the same length."""
    copy, wanted, found = new.copy(), hashlib.sha256(new.data).hexdigest(), []
    for _ in range(TURNS):
        start = time.thread_time()
        for _ in range(COPIES):
            np.copyto(copy, new)
        copy_s, start = (time.thread_time() - start) / COPIES, time.perf_counter()
        digest, busy_s = there_and_back(old, new)
        if digest != wanted:
            raise RuntimeError("the result is another one")
        found.append(Turn(busy_s, time.perf_counter() - start, copy_s))
    return found
