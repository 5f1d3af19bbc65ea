"""Flaw: what cannot be true of a row on its face, whatever anybody else says. Nothing frees it."""

import math

from hexcloud.appraise.doubt import Doubt, reject
from hexcloud.appraise.known import Known
from hexcloud.appraise.units import moment, usd_per_hour
from hexcloud.domain.offer import Tenure
from hexcloud.domain.row import Row

_TENURES = frozenset(tenure.value for tenure in Tenure)
_SIZES = ("vcpus", "memory_gib", "network_gb_per_s", "quota_units")
_NAMES = ("cloud", "region", "instance_type")


def flaw(row: Row, known: Known) -> Doubt | None:
    """Return the first flaw of a row."""
    return _price_flaw(row, known) or _date_flaw(row, known) or _word_flaw(row) or _count_flaw(row) or _size_flaw(row)


def _price_flaw(row: Row, known: Known) -> Doubt | None:
    if math.isnan(row.price):
        return reject("no_price", "price", f"lists no price{f' ({row.missing})' if row.missing else ''}")
    if not 0 < row.price < math.inf:
        return reject("price_not_positive", "price", f"price {row.price:g} is not a positive number")
    usd = usd_per_hour(row, known.usd_per_unit)
    if usd is None:
        reason = f"the price is in {row.currency or 'no currency'}, for which there is no rate"
        return reject("unknown_currency", "currency", reason)
    if _count_flaw(row) is None and not (0 < usd < math.inf and row.list_price < math.inf):
        return reject("price_not_positive", "price", f"price {row.price:g} {row.currency} is no sum that can be paid")
    return None


def _date_flaw(row: Row, known: Known) -> Doubt | None:
    as_of = moment(row.as_of)
    if as_of is None:
        return reject("bad_date", "as_of", f"as_of {row.as_of!r} is not a date")
    if known.latest is not None and as_of > known.latest:
        return reject("bad_date", "as_of", f"as_of {row.as_of!r} lies in the future")
    return None


def _word_flaw(row: Row) -> Doubt | None:
    if row.tenure not in _TENURES:
        return reject("bad_tenure", "tenure", f"tenure {row.tenure!r} is neither on_demand nor spot")
    for field in _NAMES:
        name: str = getattr(row, field)
        if not name.strip() or "/" in name:
            return reject("bad_name", field, f"{field} {name!r} cannot be part of an offer's id")
    if row.zone and "/" in row.zone:
        return reject("bad_name", "zone", f"zone {row.zone!r} cannot be part of an offer's id")
    return None


def _count_flaw(row: Row) -> Doubt | None:
    if math.isfinite(row.gpu_count) and row.gpu_count >= 1 and row.gpu_count == int(row.gpu_count):
        return None
    return reject("bad_count", "gpu_count", f"{row.gpu_count:g} is no number of GPUs that a machine can have")


def _size_flaw(row: Row) -> Doubt | None:
    for field in _SIZES:
        size: float = getattr(row, field)
        if not math.isfinite(size) or size < 0:
            return reject("bad_size", field, f"{field} {size:g} is not a size")
    return None if row.network_gb_per_s > 0 else reject("bad_size", "network_gb_per_s", "a machine without a network")
