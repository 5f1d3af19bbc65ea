import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from hexcloud.domain.fleet import NodeId
from hexcloud.domain.messages import PlaceTrouble
from hexcloud.runtime.coordinator_stores import LONGEST_PAUSE_S, PAUSE_S, NoCopyError, StoredCopies
from tests.runtime.web_store import WebStore

HERE, ELSEWHERE = "aws/us-east-1", "gcp/us-east4"
Scene = Callable[[], Awaitable[None]]


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def store(tmp_path: Path) -> Iterator[WebStore]:
    store = WebStore(tmp_path / "store")
    yield store
    store.close()


def file(folder: Path, content: bytes) -> tuple[str, Path]:
    path = folder / hashlib.sha256(content).hexdigest()
    path.write_bytes(content)
    return path.name, path


def trouble(sha256: str, reason: str = "HTTP 404") -> PlaceTrouble:
    return PlaceTrouble(node_id=NodeId("n"), sha256=sha256, reason=reason)


def play(scene: Scene) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await scene()

    asyncio.run(bounded())


def test_however_many_ask_at_once_one_copy_goes_to_the_store(store: WebStore, tmp_path: Path) -> None:
    async def scene() -> None:
        copies = StoredCopies({HERE: store})
        sha256, path = file(tmp_path, b"weights")
        urls = await asyncio.gather(*(copies.place(HERE, sha256, path, 5) for _ in range(8)))
        assert store.uploads == [f"weights/{sha256}"] and len(set(urls)) == 1
        assert copies.sent_bytes == {HERE: len(b"weights")}

    play(scene)


def test_a_region_without_a_store_has_no_copy(store: WebStore, tmp_path: Path) -> None:
    async def scene() -> None:
        copies = StoredCopies({HERE: store})
        assert copies.is_open(HERE) and not copies.is_open(ELSEWHERE)
        with pytest.raises(NoCopyError):
            await copies.place(ELSEWHERE, *file(tmp_path, b"weights"), 5)

    play(scene)


def test_what_is_served_no_more_goes_and_at_the_end_everything(store: WebStore, tmp_path: Path) -> None:
    async def scene() -> None:
        copies = StoredCopies({HERE: store})
        files = [file(tmp_path, bytes([number])) for number in range(3)]
        for sha256, path in files:
            await copies.place(HERE, sha256, path, 5)
        kept = {sha256 for sha256, _ in files[1:]}
        copies.keep_only(kept)
        while len(store.list("weights")) > 2:  # noqa: ASYNC110 - it goes in the background
            await asyncio.sleep(0.01)
        assert {name.rpartition("/")[2] for name in store.list("weights")} == kept
        await copies.close()
        assert store.list("weights") == ()

    play(scene)


def test_a_new_head_removes_what_an_earlier_one_has_left(store: WebStore) -> None:
    async def scene() -> None:
        store.file("weights/old").write_bytes(b"of a head that is gone")
        copies = StoredCopies({HERE: store})
        copies.begin()
        while store.list("weights"):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)

    play(scene)


def test_a_store_that_cannot_be_written_is_named_left_alone_and_tried_again(store: WebStore, tmp_path: Path) -> None:
    async def scene() -> None:
        clock = Clock()
        copies = StoredCopies({HERE: store}, clock)
        told = file(tmp_path, b"weights")
        store.refuses_writing = True
        with pytest.raises(NoCopyError, match="denied"):
            await copies.place(HERE, *told, 5)
        assert copies.trouble == {HERE: "access is denied (403)"} and not copies.is_open(HERE)
        store.refuses_writing = False
        with pytest.raises(NoCopyError):
            await copies.place(HERE, *told, 5)
        clock.now_s += PAUSE_S
        assert await copies.place(HERE, *told, 5)
        assert copies.trouble == {} and copies.is_open(HERE)

    play(scene)


def test_a_store_that_fails_again_and_again_is_asked_ever_less_and_sent_nothing_it_cannot_sign(
    store: WebStore, tmp_path: Path
) -> None:
    async def scene() -> None:
        clock = Clock()
        copies = StoredCopies({HERE: store}, clock)
        told = file(tmp_path, b"weights")
        store.refuses_signing = True
        tries = 0
        for _minute in range(60):
            tries += copies.is_open(HERE)
            with pytest.raises(NoCopyError):
                await copies.place(HERE, *told, 5)
            clock.now_s += PAUSE_S
        assert tries == 6, "after 0, 1, 3, 7, 15 and 31 minutes"
        assert store.uploads == [] and copies.sent_bytes[HERE] == 0
        store.refuses_signing = False
        clock.now_s += 2 * LONGEST_PAUSE_S
        assert await copies.place(HERE, *told, 5)
        copies.hear(HERE, trouble(told[0]))
        clock.now_s += PAUSE_S
        assert copies.is_open(HERE), "it had worked for long"

    play(scene)


def test_a_copy_that_a_node_did_not_find_is_written_anew_after_a_while(store: WebStore, tmp_path: Path) -> None:
    async def scene() -> None:
        clock = Clock()
        copies = StoredCopies({HERE: store}, clock)
        sha256, path = file(tmp_path, b"weights")
        await copies.place(HERE, sha256, path, 5)
        copies.hear(HERE, trouble(sha256))
        assert copies.trouble == {HERE: "n: HTTP 404"} and not copies.is_open(HERE)
        copies.hear(ELSEWHERE, trouble(sha256))
        clock.now_s += PAUSE_S
        await copies.place(HERE, sha256, path, 5)
        assert len(store.uploads) == 2

    play(scene)


def test_what_was_never_copied_there_is_no_trouble_of_a_store_and_nothing_of_its_name_is_removed(
    store: WebStore, tmp_path: Path
) -> None:
    async def scene() -> None:
        copies = StoredCopies({HERE: store})
        await copies.place(HERE, *file(tmp_path, b"weights"), 5)
        store.file("weights/other").write_bytes(b"of another run")
        copies.hear(HERE, trouble("other"))
        assert copies.trouble == {} and copies.is_open(HERE)
        await copies.close()
        assert store.list("weights") == ("weights/other",)

    play(scene)


def test_a_copy_on_its_way_is_not_sent_again_whatever_is_heard_of_one_before(store: WebStore, tmp_path: Path) -> None:
    async def scene() -> None:
        clock = Clock()
        copies = StoredCopies({HERE: store}, clock)
        told = file(tmp_path, b"weights")
        store.is_open.clear()
        assert await copies.place(HERE, *told, 0.0) == ""
        copies.hear(HERE, trouble(told[0]))
        clock.now_s += PAUSE_S
        assert await copies.place(HERE, *told, 0.0) == ""
        store.is_open.set()
        assert await copies.place(HERE, *told, 5)
        assert len(store.uploads) == 1 and copies.sent_bytes == {HERE: len(b"weights")}

    play(scene)


def test_a_file_that_has_gone_is_no_copy(store: WebStore, tmp_path: Path) -> None:
    async def scene() -> None:
        copies = StoredCopies({HERE: store})
        with pytest.raises(NoCopyError, match="No such file"):
            await copies.place(HERE, "0" * 64, tmp_path / "gone", 5)

    play(scene)


def test_who_asks_too_early_is_told_to_ask_again(store: WebStore, tmp_path: Path) -> None:
    async def scene() -> None:
        copies = StoredCopies({HERE: store})
        told = file(tmp_path, bytes(1 << 20))
        assert await copies.place(HERE, *told, 0.0) == ""
        while not await copies.place(HERE, *told, 0.01):
            pass
        assert len(store.uploads) == 1

    play(scene)
