"""The run's memory in one SQLite file. The only package that knows SQLAlchemy."""

from hexcloud.adapters.store.sqlite import SqliteStore

__all__ = ["SqliteStore"]
