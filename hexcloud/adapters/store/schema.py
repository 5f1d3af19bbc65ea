"""Tables. A model is kept as its JSON in `body`; the other columns are only what queries need."""

from sqlalchemy import Column, Float, ForeignKey, Index, Integer, MetaData, String, Table, Text

VERSION = 1
"""Raised by every change that an older hexcloud cannot read."""

METADATA = MetaData()


SCHEMA = Table("schema", METADATA, Column("version", Integer, nullable=False))

RUNS = Table(
    "runs",
    METADATA,
    Column("id", String, primary_key=True),
    Column("created_wall_s", Float, nullable=False),
    Column("body", Text, nullable=False),
)

NODES = Table(
    "nodes",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("id", String, nullable=False, unique=True),
    Column("run_id", String, ForeignKey("runs.id"), nullable=False),
    Column("body", Text, nullable=False),
    Index("nodes_by_run", "run_id", "number"),
)
"""`number` is the order of first request; a later save of the same node keeps it."""

PLANS = Table(
    "plans",
    METADATA,
    Column("run_id", String, ForeignKey("runs.id"), primary_key=True),
    Column("plan", Text, nullable=False),
    Column("placement", Text, nullable=False),
)

EVENTS = Table(
    "events",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("run_id", String, ForeignKey("runs.id"), nullable=False),
    Column("body", Text, nullable=False),
    Index("events_by_run", "run_id", "number"),
)

LEDGER = Table(
    "ledger",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("run_id", String, ForeignKey("runs.id"), nullable=False),
    Column("usd", Float, nullable=False),
    Column("body", Text, nullable=False),
    Index("ledger_by_run", "run_id", "number"),
)

BLOCKS = Table(
    "blocks",
    METADATA,
    Column("run_id", String, ForeignKey("runs.id"), primary_key=True),
    Column("offer_id", String, primary_key=True),
    Column("until_s", Float, nullable=False),
    Column("reason", Text, nullable=False),
)

VIEWS = Table(
    "views",
    METADATA,
    Column("run_id", String, ForeignKey("runs.id"), primary_key=True),
    Column("body", Text, nullable=False),
)
