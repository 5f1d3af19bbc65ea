import asyncio
import hashlib
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest

from hexcloud.domain.delta import WeightsDelta
from hexcloud.domain.errors import EngineError
from hexcloud.domain.messages import WeightsManifest
from hexcloud.runtime import weight_pace
from hexcloud.runtime.probe import LinkCap
from hexcloud.runtime.rollout_weights import WEIGHTS_FILE, Source, WeightFolder
from hexcloud.runtime.token_bucket import TokenBucket
from hexcloud.runtime.weight_pace import SHARE, SLOWEST_BYTES_PER_S, least_bytes_per_s, paced
from hexcloud.runtime.weight_relay import in_turn

CONTENT = bytes(range(256)) * 4096
MANIFEST = WeightsManifest(epoch=0, version=1, sha256=hashlib.sha256(CONTENT).hexdigest(), size=len(CONTENT))
Wanted = WeightsManifest | WeightsDelta


@pytest.fixture(autouse=True)
def _short_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_pace, "WINDOW_S", 0.2)


class Drip:
    """A source that gives a piece now and then, for ever if it is let."""

    def __init__(self, piece: int, every_s: float) -> None:
        self.piece, self.every_s = piece, every_s
        self.given = 0
        self.is_closed = False

    async def source(self, _wanted: Wanted, offset: int) -> AsyncIterator[bytes]:
        try:
            for at in count(offset, self.piece):
                if at >= len(CONTENT):
                    return
                await asyncio.sleep(self.every_s)
                self.given += len(CONTENT[at : at + self.piece])
                yield CONTENT[at : at + self.piece]
        finally:
            self.is_closed = True


def fetched(folder: Path, source: Source, cap: LinkCap | None = None) -> bytes:
    path = asyncio.run(asyncio.wait_for(WeightFolder(folder, cap or LinkCap()).fetch(MANIFEST, source), 30))
    return (path / WEIGHTS_FILE).read_bytes()


def test_a_source_that_drips_is_closed_and_the_next_one_goes_on_where_it_was(tmp_path: Path) -> None:
    drip, asked, told = Drip(1, 0.02), list[int](), list[str]()

    async def coordinator(_wanted: Wanted, offset: int) -> AsyncIterator[bytes]:
        asked.append(offset)
        yield CONTENT[offset:]

    async def hear(_wanted: Wanted, error: Exception) -> None:
        told.append(str(error))

    assert fetched(tmp_path, in_turn((drip.source, coordinator), None, hear)) == CONTENT
    assert drip.is_closed and asked == [drip.given - 1], "the byte that was one too many is fetched again"
    assert len(told) == 1 and "too slow" in told[0]


def test_the_last_source_is_never_given_up_for_its_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_pace, "SHARE", 1e6)
    drip = Drip(len(CONTENT) // 40, 0.02)  # under a least pace that nothing reaches

    async def nothing(_wanted: Wanted, _offset: int) -> AsyncIterator[bytes]:
        raise EngineError("gone")
        yield b""

    assert fetched(tmp_path, in_turn((nothing, drip.source))) == CONTENT


def test_a_nodes_own_slow_link_blames_nobody(tmp_path: Path) -> None:
    source = Drip(len(CONTENT) // 8, 0.0).source
    assert fetched(tmp_path, paced(source), LinkCap(TokenBucket(1e6))) == CONTENT


def test_a_long_wait_for_the_first_byte_is_the_sources_own_matter(tmp_path: Path) -> None:
    source = Drip(len(CONTENT), 0.5).source
    assert fetched(tmp_path, paced(source)) == CONTENT


def test_a_line_that_is_slow_on_purpose_is_measured_by_its_own_speed(tmp_path: Path) -> None:
    slow = Drip(64, 0.005)
    assert least_bytes_per_s(MANIFEST.size, None) > 1e3
    with pytest.raises(EngineError, match="too slow"):
        fetched(tmp_path / "real", paced(Drip(4, 0.02).source))

    async def first_second() -> None:
        async for _ in paced(slow.source, 10e3)(MANIFEST, 0):
            if slow.given > 5000:
                return

    asyncio.run(first_second())


def test_the_least_pace_is_a_share_of_what_a_file_must_come_at_and_of_the_link() -> None:
    assert least_bytes_per_s(10**9, None) == pytest.approx(1e9 / (60 + 40) / 10)
    assert least_bytes_per_s(10**9, 2e6) == pytest.approx(2e5)
    assert least_bytes_per_s(10**12, None) < SHARE * SLOWEST_BYTES_PER_S
