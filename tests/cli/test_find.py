import pytest

from hexcloud.adapters.store import SqliteStore
from hexcloud.cli.find import find_run
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.fleet import RunId
from hexcloud.domain.run import RunRecord


@pytest.fixture
def newer(store: SqliteStore, run: RunRecord) -> RunRecord:
    newer = run.model_copy(update={"id": RunId("main-2"), "created_wall_s": 2000.0})
    store.save_run(newer)
    return newer


def test_without_a_word_the_newest_run_is_meant(store: SqliteStore, newer: RunRecord) -> None:
    assert find_run(store, None) == newer


def test_a_run_is_found_by_id_by_name_and_by_the_beginning_of_its_id(
    store: SqliteStore, run: RunRecord, newer: RunRecord
) -> None:
    assert find_run(store, "main-1") == run
    assert find_run(store, "main") == newer
    store.save_run(run.model_copy(update={"id": RunId("other-7"), "created_wall_s": 1.0}))
    assert find_run(store, "oth").id == "other-7"


def test_an_unknown_or_ambiguous_word_is_answered_with_ids(store: SqliteStore, newer: RunRecord) -> None:
    with pytest.raises(ConfigError, match=r"unknown: main-2, main-1"):
        find_run(store, "maim")
    with pytest.raises(ConfigError, match="one of several: main-2, main-1"):
        find_run(store, "main-")
