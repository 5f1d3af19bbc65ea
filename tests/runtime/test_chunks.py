import hashlib
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.errors import EngineError
from hexcloud.runtime.chunks import ChunkList, Digests, PartFile


def opened(path: Path, told: ChunkList) -> PartFile:
    part = PartFile(path, told)
    part.resume()
    return part


def told(content: bytes, chunk_bytes: int) -> ChunkList:
    digests = Digests(chunk_bytes)
    digests.add(content)
    return ChunkList(len(content), chunk_bytes, digests.finish()[1])


@given(pieces=st.lists(st.binary(max_size=20), max_size=10), chunk_bytes=st.integers(1, 9))
def test_digests_do_not_depend_on_how_the_bytes_came(pieces: list[bytes], chunk_bytes: int) -> None:
    digests, content = Digests(chunk_bytes), b"".join(pieces)
    for piece in pieces:
        digests.add(piece)
    chunks = [content[begin : begin + chunk_bytes] for begin in range(0, len(content), chunk_bytes)]
    assert digests.finish() == (
        hashlib.sha256(content).hexdigest(),
        tuple(hashlib.sha256(chunk).hexdigest() for chunk in chunks),
    )


@given(content=st.binary(max_size=60), chunk_bytes=st.integers(1, 9), data=st.data())
def test_a_download_that_breaks_anywhere_goes_on_from_its_last_right_chunk(
    content: bytes, chunk_bytes: int, data: st.DataObject
) -> None:
    goal = told(content, chunk_bytes)
    with TemporaryDirectory() as folder:
        path, tries = Path(folder) / "part", 0
        is_whole = False
        while not is_whole:
            with closing(opened(path, goal)) as part:
                assert part.size % chunk_bytes == 0 or part.is_whole
                rest = content[part.size :]
                sent = rest if tries > 3 else rest[: data.draw(st.integers(0, len(rest)))]
                step = data.draw(st.integers(1, 7))
                for begin in range(0, len(sent), step):
                    part.append(sent[begin : begin + step])
                is_whole = part.is_whole
            tries += 1
        assert path.read_bytes() == content


def test_a_wrong_chunk_is_never_kept(tmp_path: Path) -> None:
    goal = told(b"aaaabbbbcc", 4)
    part = opened(tmp_path / "part", goal)
    with pytest.raises(EngineError, match="chunk 1 is not the one meant: fetch again from byte 4"):
        part.append(b"aaaaXbbbcc")
    part.append(b"bbbb")
    part.append(b"cc")
    part.close()
    assert (tmp_path / "part").read_bytes() == b"aaaabbbbcc"


def test_what_was_damaged_on_disk_is_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(b"aaaaXbbbcc")
    part = opened(tmp_path / "part", told(b"aaaabbbbcc", 4))
    assert part.size == 4
    part.append(b"bbbbcc")
    assert part.is_whole
    part.close()


def test_more_than_was_promised_is_refused(tmp_path: Path) -> None:
    part = opened(tmp_path / "part", told(b"aaaa", 4))
    with pytest.raises(EngineError, match="1 bytes came after the end"):
        part.append(b"aaaa!")
    part.close()
