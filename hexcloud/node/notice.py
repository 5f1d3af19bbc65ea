"""watch_for_notice: hears from the cloud, on the machine itself, that the machine will be taken away."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog

from hexcloud.adapters.clouds.metadata import Metadata, open_metadata
from hexcloud.domain.errors import ProvisionError
from hexcloud.domain.messages import INTERRUPTION, Notice

LOOK_S = 2.0
"""Of Google's 30 s a fifteenth; AWS, whose notice is two minutes, advises a look every five seconds at least."""

log = structlog.get_logger()

Hear = Callable[[Notice], None]


@asynccontextmanager
async def watching(cloud: str, hear: Hear, look_s: float = LOOK_S) -> AsyncIterator[None]:
    """Watch a cloud's metadata while the block runs; an empty name is nobody's and nothing is watched."""
    if not cloud:
        yield
        return
    metadata = open_metadata(cloud, os.environ)
    watch = asyncio.create_task(_watch(metadata, hear, look_s))
    try:
        yield
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        await metadata.close()


async def _watch(metadata: Metadata, hear: Hear, look_s: float) -> None:
    """Tell every new word; after an interruption there is nothing more to say."""
    last: Notice | None = None
    is_silent = False
    while last is None or last.cause != INTERRUPTION:
        try:
            notice = await metadata.notice()
            is_silent = False
        except ProvisionError as error:
            if not is_silent:
                log.warning("metadata_silent", reason=str(error))
            notice, is_silent = last, True
        if notice is not None and notice != last:
            log.warning("notice", cause=notice.cause, until_s=notice.until_s, detail=notice.detail)
            last = notice
            hear(notice)
        await asyncio.sleep(look_s)
