"""One region's answer, kept whole: prices, doubts, limits, and how it went. All in the caller's transaction."""

import math
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, RowMapping, and_, delete, insert, select
from sqlalchemy.dialects.sqlite import insert as upsert

from hexcloud.adapters.store.price_changes import add_changes, add_end, confirm
from hexcloud.adapters.store.schema import DOUBTS, PRICES, QUOTAS, REFRESHES
from hexcloud.domain.market import Outcome
from hexcloud.domain.offer import OfferId
from hexcloud.domain.row import Belief, Part


def keep_part(
    connection: Connection, part: Part, beliefs: tuple[Belief, ...], latest_s: float = math.inf
) -> int | None:
    """Keep a part as `PriceStore.save_part` promises, and return the number of price changes."""
    if _is_outdated(connection, part, latest_s):
        return None
    if part.problem:
        _note_refresh(connection, part, rows=None)
        return 0
    before = _prices_of(connection, part)
    believed = _one_each(beliefs)
    changed = [belief for key, belief in believed.items() if _is_change(before.get(key), belief)]
    listed = {belief.row.id for belief in beliefs}
    gone = [row for key, row in before.items() if key not in listed]
    add_changes(connection, part, changed, gone)
    confirm(connection, part, set(believed) - {belief.row.id for belief in changed})
    _replace_prices(connection, part, believed.values(), gone)
    _replace_doubts(connection, part, [one for one in beliefs if one.outcome is not Outcome.ACCEPT])
    _replace_quotas(connection, part, is_closed=not beliefs)
    _note_refresh(connection, part, rows=len(believed))
    return len(changed) + len(gone)


def drop_prices(connection: Connection, beliefs: Iterable[Belief], at_s: float) -> None:
    """Believe prices no more, and write down that they ended."""
    for row in (belief.row for belief in beliefs):
        connection.execute(delete(PRICES).where(PRICES.c.source == row.source, PRICES.c.offer_id == row.id))
        add_end(connection, row, at_s)


def _is_outdated(connection: Connection, part: Part, latest_s: float) -> bool:
    """Has this region a good answer that is newer, and not from a moment yet to come?"""
    good_s = connection.execute(select(REFRESHES.c.good_s).where(_of(REFRESHES, part))).scalar()
    return good_s is not None and part.as_of.timestamp() < good_s <= latest_s


def _one_each(beliefs: tuple[Belief, ...]) -> dict[OfferId, Belief]:
    """Of several believed rows of one offer the dearest counts, as in `merge`."""
    dearest: dict[OfferId, Belief] = {}
    for belief in beliefs:
        rival = dearest.get(belief.row.id)
        if belief.is_believed and (rival is None or belief.row.list_price > rival.row.list_price):
            dearest[belief.row.id] = belief
    return dearest


def _of(table: Any, part: Part) -> Any:
    return and_(table.c.source == part.source, table.c.cloud == part.cloud, table.c.region == part.region)


def _prices_of(connection: Connection, part: Part) -> dict[OfferId, RowMapping]:
    rows = connection.execute(select(PRICES).where(_of(PRICES, part))).mappings()
    return {OfferId(row["offer_id"]): row for row in rows}


def _is_change(before: RowMapping | None, belief: Belief) -> bool:
    return before is None or (before["list_price"], before["currency"]) != (
        belief.row.list_price,
        belief.row.currency,
    )


def _replace_prices(connection: Connection, part: Part, believed: Iterable[Belief], gone: list[RowMapping]) -> None:
    at_s = part.as_of.timestamp()
    for row in gone:
        wanted = and_(PRICES.c.source == part.source, PRICES.c.offer_id == row["offer_id"])
        connection.execute(delete(PRICES).where(wanted))
    rows = [
        {
            "source": part.source,
            "offer_id": belief.row.id,
            "cloud": part.cloud,
            "region": part.region,
            "list_price": belief.row.list_price,
            "currency": belief.row.currency,
            "confirmed_s": at_s,
            "body": belief.model_dump_json(),
        }
        for belief in believed
    ]
    if rows:
        statement = upsert(PRICES)
        replaced = {name: statement.excluded[name] for name in rows[0] if name not in ("source", "offer_id")}
        keys = ("source", "offer_id")
        connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=replaced), rows)


def _replace_doubts(connection: Connection, part: Part, doubted: list[Belief]) -> None:
    since = {
        (row["offer_id"], row["outcome"]): row["since_s"]
        for row in connection.execute(select(DOUBTS).where(_of(DOUBTS, part))).mappings()
    }
    connection.execute(delete(DOUBTS).where(_of(DOUBTS, part)))
    rows = [
        {
            "source": part.source,
            "cloud": part.cloud,
            "region": part.region,
            "offer_id": belief.row.id,
            "outcome": belief.outcome.value,
            "since_s": since.get((belief.row.id, belief.outcome.value), part.as_of.timestamp()),
            "content": part.content,
            "body": belief.model_dump_json(),
        }
        for belief in doubted
    ]
    if rows:
        connection.execute(insert(DOUBTS), rows)


def _replace_quotas(connection: Connection, part: Part, is_closed: bool) -> None:
    """What the region's answer no longer names limits nothing any more; one in part may not have been let to ask."""
    if part.quotas or is_closed:
        connection.execute(delete(QUOTAS).where(_of(QUOTAS, part)))
    whose = {"source": part.source, "cloud": part.cloud, "region": part.region}
    for quota in part.quotas:
        row = {"key": quota.key, "at_s": part.as_of.timestamp(), "body": quota.model_dump_json(), **whose}
        connection.execute(upsert(QUOTAS).values(row).on_conflict_do_update(index_elements=("key",), set_=row))


def _note_refresh(connection: Connection, part: Part, rows: int | None) -> None:
    """Note how it went; after a problem the last good moment and its rows stay.

    What a half-written answer looked like is remembered until a good one, or another half-written one: a time-out
    between two of them says nothing.
    """
    at_s = part.as_of.timestamp()
    key = {"source": part.source, "cloud": part.cloud, "region": part.region}
    latest: dict[str, object] = {"at_s": at_s, "problem": part.problem}
    short = {"short_prices": part.short_prices, "short_content": part.content if part.short_prices else ""}
    is_good = rows is not None
    good = {"good_s": at_s if is_good else None, "rows": rows or 0, "priced": part.priced if is_good else 0}
    first = {**key, **latest, **short, **good, "complete": is_good and part.complete}
    kept = first if is_good else {**latest, **(short if part.short_prices else {})}
    statement = upsert(REFRESHES).values(first)
    connection.execute(statement.on_conflict_do_update(index_elements=tuple(key), set_=kept))
