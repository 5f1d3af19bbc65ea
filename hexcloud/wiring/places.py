"""Where hexcloud keeps what it knows, and how to open it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hexcloud.ports import PriceStore, Store


def home() -> Path:
    """Return the folder of the store and the runs: HEXCLOUD_HOME, or `~/.hexcloud`."""
    return Path(os.environ.get("HEXCLOUD_HOME") or Path.home() / ".hexcloud").absolute()


def factors_file() -> Path:
    """Return the file in which `hexcloud profile` keeps what it measured, and from which every plan reads it."""
    return home() / "calibration.yaml"


def store_file() -> Path:
    """Return the file of the store: runs and prices."""
    return home() / "hexcloud.db"


def open_store() -> "Store":
    """Open the store, making it when there is none. Raises StoreError."""
    from hexcloud.adapters.store.sqlite import SqliteStore

    return SqliteStore(store_file())


def open_prices() -> "PriceStore":
    """Open the memory of prices, in the same file. Raises StoreError."""
    from hexcloud.adapters.store.prices import SqlitePrices

    return SqlitePrices(store_file())
