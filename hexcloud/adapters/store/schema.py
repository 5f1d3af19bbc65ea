"""Tables. A model is kept as its JSON in `body`; the other columns are only what queries need."""

from sqlalchemy import Boolean, Column, Float, ForeignKey, Index, Integer, MetaData, String, Table, Text

VERSION = 3
"""Raised by every change of the tables. 2: prices. 3: the mark, complete answers, whose quotas they are."""

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

PRICES = Table(
    "prices",
    METADATA,
    Column("source", String, primary_key=True),
    Column("offer_id", String, primary_key=True),
    Column("cloud", String, nullable=False),
    Column("region", String, nullable=False),
    Column("list_price", Float, nullable=False),
    Column("currency", String, nullable=False),
    Column("confirmed_s", Float, nullable=False),
    Column("body", Text, nullable=False),
)
"""What is believed now of every listed offer, one row per source. `body` is a Belief."""

PRICE_CHANGES = Table(
    "price_changes",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("source", String, nullable=False),
    Column("offer_id", String, nullable=False),
    Column("at_s", Float, nullable=False),
    Column("confirmed_s", Float, nullable=False),
    Column("list_price", Float),
    Column("currency", String, nullable=False),
    Column("usd_per_hour", Float),
    Index("price_changes_in_time", "offer_id", "source", "at_s", "number"),
)
"""No price: the source no longer lists the offer. Never changed but for `confirmed_s` of an offer's newest row, and
`at_s` of its oldest when a source remembers that it had this price before."""

DOUBTS = Table(
    "doubts",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("source", String, nullable=False),
    Column("cloud", String, nullable=False),
    Column("region", String, nullable=False),
    Column("offer_id", String, nullable=False),
    Column("outcome", String, nullable=False),
    Column("since_s", Float, nullable=False),
    Column("content", String, nullable=False),
    Column("body", Text, nullable=False),
    Index("doubts_by_source", "source", "cloud", "region"),
)
"""Rows of each region's last answer that were not accepted as they stood. `body` is a Belief."""

REFRESHES = Table(
    "refreshes",
    METADATA,
    Column("source", String, primary_key=True),
    Column("cloud", String, primary_key=True),
    Column("region", String, primary_key=True),
    Column("at_s", Float, nullable=False),
    Column("good_s", Float),
    Column("rows", Integer, nullable=False),
    Column("problem", Text, nullable=False),
    Column("short_prices", Integer, nullable=False),
    Column("short_content", String, nullable=False),
    Column("priced", Integer, nullable=False, server_default="0"),
    Column("complete", Boolean, nullable=False, server_default="0"),
)

QUOTAS = Table(
    "quotas",
    METADATA,
    Column("key", String, primary_key=True),
    Column("at_s", Float, nullable=False),
    Column("body", Text, nullable=False),
    Column("source", String, nullable=False, server_default=""),
    Column("cloud", String, nullable=False, server_default=""),
    Column("region", String, nullable=False, server_default=""),
)
"""Source, cloud and region are those whose answer brought the limit last: their next good answer replaces it."""

VOUCHERS = Table(
    "vouchers",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("offer_id", String, nullable=False),
    Column("body", Text, nullable=False),
)

RATES = Table(
    "rates",
    METADATA,
    Column("currency", String, primary_key=True),
    Column("usd_per_unit", Float, nullable=False),
    Column("at_s", Float, nullable=False),
)

MARK = Table(
    "price_mark",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("number", Integer, nullable=False),
)
"""One row: how many times anything about prices was written. No clock: sources answer out of order."""
