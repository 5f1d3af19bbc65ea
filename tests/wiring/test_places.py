from pathlib import Path

import pytest

from hexcloud.wiring.places import factors_file, open_prices, open_store, store_file
from hexcloud.wiring.places import home as hexcloud_home


def test_everything_lies_in_the_folder_that_the_user_names(home: Path) -> None:
    assert hexcloud_home() == home
    assert {factors_file().parent, store_file().parent} == {home}


def test_without_a_word_it_lies_in_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEXCLOUD_HOME")
    assert hexcloud_home() == Path.home() / ".hexcloud"


def test_runs_and_prices_are_one_file() -> None:
    assert open_store().runs() == ()
    assert open_prices().current() == ()
    assert store_file().is_file()
