import hashlib
from pathlib import Path

import pytest

from hexcloud.runtime.atomic import atomic_directory, sha256_of


def test_the_digest_is_that_of_the_content(tmp_path: Path) -> None:
    content = b"x" * (3 << 20) + b"end"
    (tmp_path / "file").write_bytes(content)
    assert sha256_of(tmp_path / "file") == hashlib.sha256(content).hexdigest()


def test_a_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "model"
    with atomic_directory(target) as draft:
        (draft / "sub").mkdir()
        (draft / "sub" / "a").write_text("1")
        assert not target.exists()
    assert (target / "sub" / "a").read_text() == "1"
    assert [path.name for path in target.parent.iterdir()] == ["model"]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), atomic_directory(tmp_path / "model") as draft:
        (draft / "a").write_text("half")
        raise RuntimeError("crash")
    assert list(tmp_path.iterdir()) == []


def test_what_exists_is_never_replaced(tmp_path: Path) -> None:
    target = tmp_path / "model"
    target.mkdir()
    (target / "a").write_text("old")
    with pytest.raises(FileExistsError), atomic_directory(target):
        pytest.fail("the block must not run")
    assert (target / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_stale_draft_of_a_crashed_process_is_not_mixed_in(tmp_path: Path) -> None:
    stale = tmp_path / ".model.draft"
    stale.mkdir()
    (stale / "junk").write_text("junk")
    with atomic_directory(tmp_path / "model") as draft:
        (draft / "a").write_text("a")
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["a"]
