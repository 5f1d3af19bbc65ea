"""SqlitePrices: the memory of prices, in the same file as the runs. Every call is one transaction."""

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection, RowMapping, and_, insert, select
from sqlalchemy.dialects.sqlite import insert as upsert

from hexcloud.adapters.store.engine import open_engine, reading, writing
from hexcloud.adapters.store.price_changes import IN_TIME, add_past
from hexcloud.adapters.store.price_parts import drop_prices, keep_part
from hexcloud.adapters.store.schema import DOUBTS, MARK, PRICE_CHANGES, PRICES, QUOTAS, RATES, REFRESHES, VOUCHERS
from hexcloud.domain.market import Outcome, Quota
from hexcloud.domain.offer import OfferId
from hexcloud.domain.prices import Held, PriceBook, PriceChange, Refresh, Voucher
from hexcloud.domain.row import Belief, Part


class SqlitePrices:
    """Implements ports.PriceStore. A region's answer is kept whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._engine = open_engine(path)

    def close(self) -> None:
        """Close the connections of this process; the next call opens new ones."""
        self._engine.dispose()

    def save_part(self, part: Part, beliefs: tuple[Belief, ...], latest_s: float = math.inf) -> int | None:
        """Keep one region's answer and return the number of price changes; None when a newer good one is known.

        A good answer dated after `latest_s`, seconds since the epoch, is from a clock that was wrong, and no reason to
        refuse this one. Raises StoreError.
        """
        with self._changing() as connection:
            return keep_part(connection, part, beliefs, latest_s)

    def save_past(self, changes: tuple[PriceChange, ...]) -> int:
        """Keep changes older than any known of their source and offer; return how many were. Raises StoreError.

        Twice the same adds nothing. Where the newest of them has the price of the oldest known change, that one is
        dated back instead: it is one price.
        """
        offers: dict[tuple[str, OfferId], list[PriceChange]] = defaultdict(list)
        for change in changes:
            offers[change.source, change.offer_id].append(change)
        with self._changing() as connection:
            return sum(add_past(connection, whose, past) for whose, past in offers.items())

    def book(self) -> PriceBook:
        """Return everything that a market is made from, as of one moment."""
        with reading(self._engine) as connection:
            return PriceBook(
                mark=_mark(connection),
                current=_current(connection),
                doubts=_doubts(connection),
                refreshes=_refreshes(connection),
                quotas=_quotas(connection),
                rates=_rates(connection),
            )

    def current(self) -> tuple[Belief, ...]:
        """Return the last believed row of every (source, offer) still listed."""
        with reading(self._engine) as connection:
            return _current(connection)

    def doubts(self) -> tuple[Belief, ...]:
        """Return the rows of the last answers that were not accepted as they stood."""
        with reading(self._engine) as connection:
            return _doubts(connection)

    def said(self, source: str) -> tuple[Belief, ...]:
        """Return the rows of a source's last good answers, each with its outcome, sorted by offer id."""
        its_last = and_(
            REFRESHES.c.source == PRICES.c.source,
            REFRESHES.c.cloud == PRICES.c.cloud,
            REFRESHES.c.region == PRICES.c.region,
            REFRESHES.c.good_s == PRICES.c.confirmed_s,  # else an older price that stands for one under doubt
        )
        listed = select(PRICES.c.body).join(REFRESHES, its_last).where(PRICES.c.source == source)
        with reading(self._engine) as connection:
            believed = (Belief.model_validate_json(body) for body in connection.scalars(listed))
            accepted = [belief for belief in believed if belief.outcome is Outcome.ACCEPT]
            doubted = connection.scalars(select(DOUBTS.c.body).where(DOUBTS.c.source == source))
            every = [*accepted, *(Belief.model_validate_json(body) for body in doubted)]
        return tuple(sorted(every, key=lambda belief: belief.row.id))

    def held(self) -> tuple[Held, ...]:
        """Return the rows in quarantine."""
        query = select(DOUBTS).where(DOUBTS.c.outcome == Outcome.QUARANTINE.value).order_by(DOUBTS.c.number)
        with reading(self._engine) as connection:
            return tuple(_held(row) for row in connection.execute(query).mappings())

    def quotas(self) -> tuple[Quota, ...]:
        """Return the last known account limits, sorted by key."""
        with reading(self._engine) as connection:
            return _quotas(connection)

    def history(self, offer_id: OfferId) -> tuple[PriceChange, ...]:
        """Return every accepted change of an offer's price, all sources, oldest first. `*` stands for anything."""
        column = PRICE_CHANGES.c.offer_id
        wanted = column.op("GLOB")(offer_id) if "*" in offer_id else column == offer_id
        query = select(PRICE_CHANGES).where(wanted).order_by(*IN_TIME)
        with reading(self._engine) as connection:
            return tuple(
                PriceChange.model_validate({name: row[name] for name in PriceChange.model_fields})
                for row in connection.execute(query).mappings()
            )

    def refreshes(self) -> tuple[Refresh, ...]:
        """Return how the last refresh of every region went, sorted by source, cloud, region."""
        with reading(self._engine) as connection:
            return _refreshes(connection)

    def vouch(self, voucher: Voucher, fallen: tuple[Belief, ...] = ()) -> None:
        """Remember that the user or a bill confirms an offer, or takes that back: then these prices are dropped."""
        with self._changing() as connection:
            body = voucher.model_dump_json()
            connection.execute(insert(VOUCHERS).values(offer_id=voucher.offer_id, body=body))
            drop_prices(connection, fallen, voucher.at_s)

    def vouchers(self) -> tuple[Voucher, ...]:
        """Return all of them, oldest first."""
        with reading(self._engine) as connection:
            bodies = connection.scalars(select(VOUCHERS.c.body).order_by(VOUCHERS.c.number))
            return tuple(Voucher.model_validate_json(body) for body in bodies)

    def save_rate(self, currency: str, usd_per_unit: float, at_s: float) -> None:
        """Remember what one unit of a currency is worth."""
        row = {"currency": currency, "usd_per_unit": usd_per_unit, "at_s": at_s}
        with self._changing() as connection:
            connection.execute(upsert(RATES).values(row).on_conflict_do_update(index_elements=("currency",), set_=row))

    def rates(self) -> dict[str, float]:
        """Return USD for one unit of each currency the user gave a rate for."""
        with reading(self._engine) as connection:
            return _rates(connection)

    def mark(self) -> int:
        """Return how many times anything was written here: what was read at the same mark is still so. Cheap."""
        with reading(self._engine) as connection:
            return _mark(connection)

    @contextmanager
    def _changing(self) -> Iterator[Connection]:
        with writing(self._engine) as connection:
            more = {"number": MARK.c.number + 1}
            connection.execute(
                upsert(MARK).values(id=1, number=1).on_conflict_do_update(index_elements=("id",), set_=more)
            )
            yield connection


def _mark(connection: Connection) -> int:
    return connection.execute(select(MARK.c.number)).scalar() or 0


def _current(connection: Connection) -> tuple[Belief, ...]:
    bodies = connection.scalars(select(PRICES.c.body).order_by(PRICES.c.offer_id, PRICES.c.source))
    return tuple(Belief.model_validate_json(body) for body in bodies)


def _doubts(connection: Connection) -> tuple[Belief, ...]:
    bodies = connection.scalars(select(DOUBTS.c.body).order_by(DOUBTS.c.offer_id, DOUBTS.c.number))
    return tuple(Belief.model_validate_json(body) for body in bodies)


def _refreshes(connection: Connection) -> tuple[Refresh, ...]:
    query = select(REFRESHES).order_by(REFRESHES.c.source, REFRESHES.c.cloud, REFRESHES.c.region)
    return tuple(Refresh.model_validate(dict(row)) for row in connection.execute(query).mappings())


def _quotas(connection: Connection) -> tuple[Quota, ...]:
    rows = connection.execute(select(QUOTAS.c.body, QUOTAS.c.at_s).order_by(QUOTAS.c.key))
    return tuple(
        Quota.model_validate_json(body).model_copy(update={"as_of": datetime.fromtimestamp(at_s, UTC)})
        for body, at_s in rows
    )


def _rates(connection: Connection) -> dict[str, float]:
    rows = connection.execute(select(RATES.c.currency, RATES.c.usd_per_unit).order_by(RATES.c.currency))
    return {currency: usd for currency, usd in rows}


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
