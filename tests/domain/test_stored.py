import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.stored import (
    CheckpointName,
    DamagedError,
    checkpoint_of,
    epochs_of,
    head_object,
    metrics_object,
    parse_marker,
    sign_marker,
    whole_checkpoints,
)

SECRET = "run-secret"
FILES = {"counters.json": "00ff", "shards/0": "11ee"}
names = st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)).map(lambda pair: CheckpointName(*pair))


def marker_text(folder: str = "checkpoints/0-20", files: dict[str, str] | None = None, secret: str = SECRET) -> bytes:
    return sign_marker(folder, FILES if files is None else files, secret).model_dump_json().encode()


def test_a_marker_says_what_its_folder_holds() -> None:
    assert parse_marker(marker_text(), "checkpoints/0-20", SECRET).files == FILES


def test_who_has_no_secret_makes_no_marker() -> None:
    with pytest.raises(DamagedError, match="not signed by this run"):
        parse_marker(marker_text(secret="guess"), "checkpoints/0-20", SECRET)


def test_a_marker_of_another_folder_is_none() -> None:
    with pytest.raises(DamagedError, match="not signed by this run"):
        parse_marker(marker_text("checkpoints/0-40"), "checkpoints/0-20", SECRET)


@pytest.mark.parametrize("text", [b"", b"{", b"{}", b"\xff", b'{"files": {"a": "0"}, "signature": "\xc3\xa9"}'])
def test_half_a_marker_is_none(text: bytes) -> None:
    with pytest.raises(DamagedError):
        parse_marker(text, "output", SECRET)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../b", "", "a//b", "./a", "..\\\\a"])
def test_a_file_outside_its_folder_is_refused(name: str) -> None:
    with pytest.raises(DamagedError, match="names"):
        parse_marker(marker_text(files={name: "0"}), "checkpoints/0-20", SECRET)


@given(st.sets(names))
def test_whole_checkpoints_are_those_with_markers_newest_first(found: set[CheckpointName]) -> None:
    marked = sorted(found)[::2]
    objects = [f"{name.folder}/shards/0" for name in found] + [f"{name.folder}.json" for name in marked]
    assert whole_checkpoints(objects) == tuple(sorted(marked, reverse=True))
    assert {checkpoint_of(name) for name in objects} == found


def test_what_is_no_checkpoint_is_passed_over() -> None:
    strangers = ("checkpoints/readme.json", "checkpoints/1-2", "checkpoints/1-2.json.tmp", "output/1-2.json", "heads/1")
    assert whole_checkpoints(strangers) == ()
    assert [checkpoint_of(name) for name in strangers] == [None] * 5


def test_epochs_sort_as_their_objects_do() -> None:
    epochs = (0, 9, 10, 123)
    assert sorted(map(head_object, epochs)) == list(map(head_object, epochs))
    assert epochs_of([*map(metrics_object, epochs), "metrics/x"]) == epochs
