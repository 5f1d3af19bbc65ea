import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hexcloud.domain.delta import WeightsDelta
from hexcloud.domain.errors import EngineError
from hexcloud.domain.messages import WeightsManifest
from hexcloud.runtime.probe import LinkCap
from hexcloud.runtime.rollout_weights import KEEP, Source, WeightFolder
from hexcloud.runtime.token_bucket import TokenBucket

BYTES = bytes(range(256)) * 64


def manifest(version: int = 0, content: bytes = BYTES, epoch: int = 0) -> WeightsManifest:
    return WeightsManifest(epoch=epoch, version=version, sha256=hashlib.sha256(content).hexdigest(), size=len(content))


def source(content: bytes = BYTES, fails_after: int | None = None, offsets: list[int] | None = None) -> Source:
    """Serve bytes in small pieces; break off after some of them; note where each try begins."""

    async def stream(_wanted: WeightsManifest | WeightsDelta, offset: int) -> AsyncIterator[bytes]:
        if offsets is not None:
            offsets.append(offset)
        for start in range(offset, len(content), 1000):
            if fails_after is not None and start - offset >= fails_after:
                raise EngineError("cut")
            yield content[start : start + 1000]

    return stream


def folder(path: Path, bytes_per_s: float | None = None, latency_s: float = 0.0) -> WeightFolder:
    return WeightFolder(path / "weights", LinkCap(TokenBucket(bytes_per_s), latency_s))


def test_a_version_arrives_whole(tmp_path: Path) -> None:
    directory = asyncio.run(folder(tmp_path).fetch(manifest(), source()))
    assert (directory / "model.safetensors").read_bytes() == BYTES
    assert not list((tmp_path / "weights").glob("*.part"))


def test_a_version_that_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    offsets: list[int] = []
    weights = folder(tmp_path)
    for _ in range(2):
        asyncio.run(weights.fetch(manifest(), source(offsets=offsets)))
    assert offsets == [0]


def test_what_an_earlier_process_left_is_used_when_it_is_whole_and_fetched_anew_when_it_is_torn(tmp_path: Path) -> None:
    offsets: list[int] = []
    whole = asyncio.run(folder(tmp_path).fetch(manifest(), source(offsets=offsets))) / "model.safetensors"
    again = folder(tmp_path)
    assert not again.has(manifest()), "nobody has looked at it yet"
    asyncio.run(again.fetch(manifest(), source(offsets=offsets)))
    assert again.has(manifest()) and offsets == [0]
    for torn in (b"", BYTES[:-100] + bytes(100)):  # as a disk has it that lost its power after the name was given
        whole.write_bytes(torn)
        asyncio.run(folder(tmp_path).fetch(manifest(), source(offsets=offsets)))
        assert whole.read_bytes() == BYTES
    assert offsets == [0, 0, 0]


def test_a_version_takes_as_long_as_its_links_latency_and_what_is_there_takes_none(tmp_path: Path) -> None:
    weights, waited_s = folder(tmp_path, latency_s=2.0), []
    for _ in range(2):
        begun_s = time.monotonic()
        asyncio.run(weights.fetch(manifest(), source()))
        waited_s.append(time.monotonic() - begun_s)
    assert waited_s[0] >= 2.0 > waited_s[1]


def test_a_broken_download_goes_on_where_it_stopped_even_after_a_restart(tmp_path: Path) -> None:
    offsets: list[int] = []
    with pytest.raises(EngineError, match="cut"):
        asyncio.run(folder(tmp_path).fetch(manifest(), source(fails_after=5000, offsets=offsets)))
    directory = asyncio.run(folder(tmp_path).fetch(manifest(), source(offsets=offsets)))
    assert offsets == [0, 5000]
    assert (directory / "model.safetensors").read_bytes() == BYTES


def test_a_short_download_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="of 16384 bytes came"):
        asyncio.run(folder(tmp_path).fetch(manifest(), source(BYTES[:-1])))
    assert not list((tmp_path / "weights").glob("*/model.safetensors"))


@pytest.mark.parametrize("content", [BYTES[::-1], BYTES + b"x"])
def test_other_bytes_than_the_manifests_are_thrown_away(tmp_path: Path, content: bytes) -> None:
    weights = folder(tmp_path)
    with pytest.raises(EngineError, match="not those of the manifest"):
        asyncio.run(weights.fetch(manifest(), source(content)))
    assert not any(path.is_file() for path in (tmp_path / "weights").rglob("*"))
    asyncio.run(weights.fetch(manifest(), source()))


def test_the_emulated_link_sets_the_pace(tmp_path: Path) -> None:
    started = time.monotonic()
    asyncio.run(folder(tmp_path, bytes_per_s=len(BYTES) / 0.2).fetch(manifest(), source()))
    assert time.monotonic() - started >= 0.18


def test_the_configuration_inside_the_file_is_laid_beside_it(tmp_path: Path) -> None:
    header = json.dumps({"__metadata__": {"format": "pt", "config": '{"model_type": "qwen2"}'}}).encode()
    content = len(header).to_bytes(8, "little") + header
    directory = asyncio.run(folder(tmp_path).fetch(manifest(content=content), source(content)))
    assert (directory / "config.json").read_text() == '{"model_type": "qwen2"}'


def test_only_the_newest_versions_stay(tmp_path: Path) -> None:
    weights = folder(tmp_path)
    versions = [manifest(9), manifest(10), manifest(11), manifest(2, epoch=1)]
    for version in versions:
        asyncio.run(weights.fetch(version, source()))
    (tmp_path / "weights" / "0-12-aaaa.part").write_bytes(b"x")
    weights.prune(versions[-1])
    kept = sorted(path.name for path in (tmp_path / "weights").iterdir())
    assert len(kept) == KEEP
    assert [name.rsplit("-", 1)[0] for name in kept] == ["0-11", "1-2"]
