"""Price changes: what prices were, in order of time. Each function works in the caller's transaction."""

import math
from collections.abc import Iterable

from sqlalchemy import Connection, RowMapping, and_, bindparam, insert, select, update

from hexcloud.adapters.store.schema import PRICE_CHANGES
from hexcloud.domain.offer import OfferId
from hexcloud.domain.prices import PriceChange
from hexcloud.domain.row import Belief, Part, Row

IN_TIME = (PRICE_CHANGES.c.at_s, PRICE_CHANGES.c.number)
"""Numbers alone do not tell: a past may be kept after what came later."""


def add_changes(connection: Connection, part: Part, changed: list[Belief], gone: list[RowMapping]) -> None:
    """Write down what is new, other than before, or no longer listed."""
    at_s = part.as_of.timestamp()
    stamp = {"source": part.source, "at_s": at_s, "confirmed_s": at_s}
    rows: list[dict[str, object]] = [
        {
            **stamp,
            "offer_id": belief.row.id,
            "list_price": belief.row.list_price,
            "currency": belief.row.currency,
            "usd_per_hour": belief.row.list_price * belief.usd_per_unit,
        }
        for belief in changed
    ]
    rows += [
        {**stamp, "offer_id": row["offer_id"], "list_price": None, "currency": row["currency"], "usd_per_hour": None}
        for row in gone
    ]
    if rows:
        connection.execute(insert(PRICE_CHANGES), rows)


def add_end(connection: Connection, row: Row, at_s: float) -> None:
    """Write down that a price is believed no more."""
    ended = {"source": row.source, "offer_id": row.id, "currency": row.currency, "at_s": at_s, "confirmed_s": at_s}
    connection.execute(insert(PRICE_CHANGES), [{**ended, "list_price": None, "usd_per_hour": None}])


def confirm(connection: Connection, part: Part, unchanged: Iterable[OfferId]) -> None:
    """The newest change of each unchanged offer is true for longer."""
    names = [{"name": offer_id} for offer_id in sorted(unchanged)]
    if not names:
        return
    theirs = PRICE_CHANGES.alias()
    newest = (
        select(theirs.c.number)
        .where(theirs.c.offer_id == bindparam("name"), theirs.c.source == part.source)
        .order_by(theirs.c.at_s.desc(), theirs.c.number.desc())
        .limit(1)
        .scalar_subquery()
    )
    statement = update(PRICE_CHANGES).where(PRICE_CHANGES.c.number == newest)
    connection.execute(statement.values(confirmed_s=part.as_of.timestamp()), names)


def add_past(connection: Connection, whose: tuple[str, OfferId], past: list[PriceChange]) -> int:
    """Write down what of a past is older than anything known of its (source, offer); return how many that are."""
    source, offer_id = whose
    mine = and_(PRICE_CHANGES.c.source == source, PRICE_CHANGES.c.offer_id == offer_id)
    query = select(PRICE_CHANGES).where(mine).order_by(*IN_TIME).limit(1)
    oldest = connection.execute(query).mappings().first()
    known_s = oldest["at_s"] if oldest else math.inf
    older = sorted((change for change in past if change.at_s < known_s), key=lambda change: change.at_s)
    added = [{**change.model_dump(), "confirmed_s": min(change.confirmed_s, known_s)} for change in older]
    if added and oldest and all(added[-1][name] == oldest[name] for name in ("list_price", "currency")):
        back = added.pop()["at_s"]
        ours = PRICE_CHANGES.c.number == oldest["number"]
        connection.execute(update(PRICE_CHANGES).where(ours).values(at_s=back))
    if added:
        connection.execute(insert(PRICE_CHANGES), added)
    return len(older)
