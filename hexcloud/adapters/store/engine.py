"""One SQLAlchemy engine per file and process: WAL, so that readers in other processes never stop the writer."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from pydantic import ValidationError
from sqlalchemy import URL, Connection, Engine, create_engine, delete, event, insert, inspect, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.schema import CreateColumn

from hexcloud.adapters.store.schema import METADATA, SCHEMA, VERSION
from hexcloud.domain.errors import StoreError

_BUSY_TIMEOUT_MS = 10_000
"""A write takes milliseconds; one that waits this long for its turn will not get it."""

_RETRY_S = 0.02

_PRAGMAS = (
    f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}",
    "PRAGMA synchronous = FULL",  # the intent to rent must survive a power cut, or a machine is forgotten
    "PRAGMA foreign_keys = ON",
)

_FILL = {
    ("refreshes", "priced"): "UPDATE refreshes SET priced = rows",
    ("quotas", "source"): "UPDATE quotas SET source = substr(key, 1, instr(key, '/') - 1)",
    ("quotas", "cloud"): "UPDATE quotas SET cloud = source",
    ("quotas", "region"): (
        "UPDATE quotas SET region = substr(key, length(source) + 2, instr(substr(key, length(source) + 2), '/') - 1)"
    ),
}
"""What a new column holds for rows that were there before: a limit `aws/us-east-1/L-1` is of the cloud's own answer."""


@cache
def engine_of(path: Path) -> Engine:
    """Return this process's engine for a file. Opens nothing yet."""
    engine = create_engine(URL.create("sqlite", database=str(path)))
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def open_engine(path: Path) -> Engine:
    """Return the engine of a file whose folder and tables exist now. Raises StoreError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{path}: {error}") from error
    engine = engine_of(path.resolve())
    prepare_schema(engine)
    return engine


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that sees one moment of the file and blocks nobody. Raises StoreError."""
    with _as_store_error(engine), engine.begin() as connection:
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that holds the writer's place from its first line. Raises StoreError."""
    with _as_store_error(engine), engine.execution_options(is_writer=True).begin() as connection:
        yield connection


def prepare_schema(engine: Engine) -> None:
    """Create or add what is missing. Raises StoreError when the file was made by a newer hexcloud."""
    with reading(engine) as connection:
        version = _version(connection)
    if version is None or version < VERSION:
        with writing(engine) as connection:
            version = _upgrade(connection)
    if version > VERSION:
        raise StoreError(
            f"{engine.url.database}: written by a newer hexcloud (schema {version}, this one knows {VERSION}); "
            "upgrade hexcloud or choose another run folder"
        )


def _upgrade(connection: Connection) -> int:
    """Bring the tables up to date; every change so far only added to them. Returns the version now there."""
    version = _version(connection)
    if version is not None and version >= VERSION:
        return version
    METADATA.create_all(connection)
    _add_columns(connection)
    connection.execute(delete(SCHEMA))
    connection.execute(insert(SCHEMA).values(version=VERSION))
    return VERSION


def _add_columns(connection: Connection) -> None:
    """Add the columns and indexes that tables made by an older hexcloud lack; what they should hold is in `_FILL`."""
    for table in METADATA.sorted_tables:
        there = {column["name"] for column in inspect(connection).get_columns(table.name)}
        for column in table.columns:
            if column.name not in there:
                spelt = CreateColumn(column).compile(dialect=connection.dialect)
                connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {spelt}")
                connection.exec_driver_sql(_FILL.get((table.name, column.name), "SELECT 1"))
        for index in table.indexes:
            index.create(connection, checkfirst=True)


def _version(connection: Connection) -> int | None:
    if not inspect(connection).has_table(SCHEMA.name):
        return None
    version: int = connection.execute(select(SCHEMA.c.version)).scalar_one()
    return version


def _prepare(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # transactions begin where `_begin` says, not where the driver guesses
    for pragma in _PRAGMAS:
        connection.execute(pragma).close()
    _write_ahead(connection)


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL. Two processes that open a new file at once: SQLite refuses one without waiting."""
    gives_up_at = time.monotonic() + _BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > gives_up_at:
                raise
            time.sleep(_RETRY_S)


def _begin(connection: Connection) -> None:
    # A transaction that reads first and writes later cannot wait for its turn in SQLite, so writers queue at once.
    is_writer = connection.get_execution_options().get("is_writer", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")


@contextmanager
def _as_store_error(engine: Engine) -> Iterator[None]:
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, ValidationError) as error:
        raise StoreError(f"{engine.url.database}: {error}") from error
