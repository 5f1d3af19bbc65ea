"""SqlitePrices: the memory of prices, in the same file as the runs. Every call is one transaction."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, RowMapping, and_, delete, insert, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from hexcloud.adapters.store.engine import open_engine, reading, writing
from hexcloud.adapters.store.schema import DOUBTS, PRICE_CHANGES, PRICES, QUOTAS, RATES, REFRESHES, VOUCHERS
from hexcloud.domain.market import Outcome, Quota
from hexcloud.domain.offer import OfferId
from hexcloud.domain.prices import Held, PriceChange, Refresh, Voucher
from hexcloud.domain.row import Belief, Part


class SqlitePrices:
    """Implements ports.PriceStore. A region's answer is kept whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._engine = open_engine(path)

    def close(self) -> None:
        """Close the connections of this process; the next call opens new ones."""
        self._engine.dispose()

    def save_part(self, part: Part, beliefs: tuple[Belief, ...]) -> int:
        """Keep one region's answer and return the number of price changes. Raises StoreError."""
        at_s = part.as_of.timestamp()
        with writing(self._engine) as connection:
            if part.problem:
                _note_refresh(connection, part, rows=None)
                return 0
            before = _prices_of(connection, part)
            believed = _one_each(beliefs)
            changed = [belief for key, belief in believed.items() if _is_change(before.get(key), belief)]
            listed = {belief.row.id for belief in beliefs}
            gone = [row for key, row in before.items() if key not in listed]
            _add_changes(connection, part, changed, gone)
            _confirm(connection, part, set(believed) - {belief.row.id for belief in changed}, at_s)
            _replace_prices(connection, part, believed.values(), gone)
            _replace_doubts(connection, part, [one for one in beliefs if one.outcome is not Outcome.ACCEPT])
            _replace_quotas(connection, part)
            _note_refresh(connection, part, rows=len(believed))
            return len(changed) + len(gone)

    def current(self) -> tuple[Belief, ...]:
        """Return the last believed row of every (source, offer) still listed."""
        with reading(self._engine) as connection:
            bodies = connection.scalars(select(PRICES.c.body).order_by(PRICES.c.offer_id, PRICES.c.source))
            return tuple(Belief.model_validate_json(body) for body in bodies)

    def doubts(self, source: str | None = None) -> tuple[Belief, ...]:
        """Return the rows of the last answers that were not accepted as they stood, of one source or of all."""
        query = select(DOUBTS.c.body).order_by(DOUBTS.c.offer_id, DOUBTS.c.number)
        if source is not None:
            query = query.where(DOUBTS.c.source == source)
        with reading(self._engine) as connection:
            return tuple(Belief.model_validate_json(body) for body in connection.scalars(query))

    def held(self) -> tuple[Held, ...]:
        """Return the rows in quarantine."""
        query = select(DOUBTS).where(DOUBTS.c.outcome == Outcome.QUARANTINE.value).order_by(DOUBTS.c.number)
        with reading(self._engine) as connection:
            return tuple(_held(row) for row in connection.execute(query).mappings())

    def quotas(self) -> tuple[Quota, ...]:
        """Return the last known account limits, sorted by key."""
        with reading(self._engine) as connection:
            bodies = connection.scalars(select(QUOTAS.c.body).order_by(QUOTAS.c.key))
            return tuple(Quota.model_validate_json(body) for body in bodies)

    def history(self, offer_id: OfferId) -> tuple[PriceChange, ...]:
        """Return every accepted change of an offer's price, all sources, oldest first. `*` stands for anything."""
        column = PRICE_CHANGES.c.offer_id
        wanted = column.op("GLOB")(offer_id) if "*" in offer_id else column == offer_id
        query = select(PRICE_CHANGES).where(wanted).order_by(PRICE_CHANGES.c.at_s, PRICE_CHANGES.c.number)
        with reading(self._engine) as connection:
            return tuple(
                PriceChange.model_validate({name: row[name] for name in PriceChange.model_fields})
                for row in connection.execute(query).mappings()
            )

    def refreshes(self) -> tuple[Refresh, ...]:
        """Return how the last refresh of every region went, sorted by source, cloud, region."""
        query = select(REFRESHES).order_by(REFRESHES.c.source, REFRESHES.c.cloud, REFRESHES.c.region)
        with reading(self._engine) as connection:
            return tuple(Refresh.model_validate(dict(row)) for row in connection.execute(query).mappings())

    def vouch(self, voucher: Voucher) -> None:
        """Remember that the user or a bill confirms an offer."""
        with writing(self._engine) as connection:
            body = voucher.model_dump_json()
            connection.execute(insert(VOUCHERS).values(offer_id=voucher.offer_id, body=body))

    def vouchers(self) -> tuple[Voucher, ...]:
        """Return all of them, oldest first."""
        with reading(self._engine) as connection:
            bodies = connection.scalars(select(VOUCHERS.c.body).order_by(VOUCHERS.c.number))
            return tuple(Voucher.model_validate_json(body) for body in bodies)

    def save_rate(self, currency: str, usd_per_unit: float, at_s: float) -> None:
        """Remember what one unit of a currency is worth."""
        row = {"currency": currency, "usd_per_unit": usd_per_unit, "at_s": at_s}
        with writing(self._engine) as connection:
            connection.execute(upsert(RATES).values(row).on_conflict_do_update(index_elements=("currency",), set_=row))

    def rates(self) -> dict[str, float]:
        """Return USD for one unit of each currency the user gave a rate for."""
        with reading(self._engine) as connection:
            rows = connection.execute(select(RATES.c.currency, RATES.c.usd_per_unit).order_by(RATES.c.currency))
            return {currency: usd for currency, usd in rows}

    def mark(self) -> tuple[object, ...]:
        """Return a value that differs whenever what a market is made from does. Cheap."""
        with reading(self._engine) as connection:
            refreshed = connection.execute(select(REFRESHES.c.at_s).order_by(REFRESHES.c.at_s.desc()).limit(1)).scalar()
            vouched = connection.execute(select(VOUCHERS.c.number).order_by(VOUCHERS.c.number.desc()).limit(1)).scalar()
            rated = connection.execute(select(RATES.c.at_s).order_by(RATES.c.at_s.desc()).limit(1)).scalar()
            return (refreshed, vouched, rated)


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


def _add_changes(connection: Connection, part: Part, changed: list[Belief], gone: list[RowMapping]) -> None:
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


def _confirm(connection: Connection, part: Part, unchanged: Iterable[OfferId], at_s: float) -> None:
    """The newest change of each unchanged offer is true for longer."""
    wanted = set(unchanged)
    if not wanted:
        return
    newest: dict[str, int] = {}
    ours = PRICE_CHANGES.c.source == part.source
    query = select(PRICE_CHANGES.c.offer_id, PRICE_CHANGES.c.number).where(
        ours, PRICE_CHANGES.c.offer_id.startswith(f"{part.cloud}/{part.region}/", autoescape=True)
    )
    for offer_id, number in connection.execute(query.order_by(PRICE_CHANGES.c.number)):
        newest[offer_id] = number
    numbers = [newest[offer_id] for offer_id in sorted(wanted) if offer_id in newest]
    for begin in range(0, len(numbers), 500):
        chunk = numbers[begin : begin + 500]
        connection.execute(update(PRICE_CHANGES).where(PRICE_CHANGES.c.number.in_(chunk)).values(confirmed_s=at_s))


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


def _replace_quotas(connection: Connection, part: Part) -> None:
    for quota in part.quotas:
        row = {"key": quota.key, "at_s": part.as_of.timestamp(), "body": quota.model_dump_json()}
        connection.execute(upsert(QUOTAS).values(row).on_conflict_do_update(index_elements=("key",), set_=row))


def _note_refresh(connection: Connection, part: Part, rows: int | None) -> None:
    """Note how it went; after a problem the last good moment and its rows stay."""
    at_s = part.as_of.timestamp()
    key = {"source": part.source, "cloud": part.cloud, "region": part.region}
    latest = {
        "at_s": at_s,
        "problem": part.problem,
        "short_prices": part.short_prices,
        "short_content": part.content if part.short_prices else "",
    }
    first = {**key, **latest, "good_s": None if rows is None else at_s, "rows": rows or 0}
    kept = latest if rows is None else first
    statement = upsert(REFRESHES).values(first)
    connection.execute(statement.on_conflict_do_update(index_elements=tuple(key), set_=kept))


def _held(row: RowMapping) -> Held:
    belief = Belief.model_validate_json(row["body"])
    return Held(
        offer_id=belief.row.id,
        source=row["source"],
        rule=belief.rule,
        reason=belief.reason,
        list_price=belief.row.list_price,
        currency=belief.row.currency,
        content=row["content"],
        at_s=row["since_s"],
    )
