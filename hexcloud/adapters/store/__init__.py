"""The memory of runs and prices in one SQLite file. The only package that knows SQLAlchemy."""

from hexcloud.adapters.store.prices import SqlitePrices
from hexcloud.adapters.store.sqlite import SqliteStore

__all__ = ["SqlitePrices", "SqliteStore"]
