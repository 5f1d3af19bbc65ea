"""`hexcloud catalog trust` and `rate`: what only the user can know about a price."""

import time
from typing import Annotated

import typer

from hexcloud.cli.output import say

BILL_AGREES = 0.05
"""A bill confirms a listing when it differs by at most this share: taxes and rounding, not another machine."""


def trust(
    offer: Annotated[str, typer.Argument(help="Id of an offer in quarantine, as `hexcloud catalog doctor` prints it.")],
    rule: Annotated[str, typer.Option("--rule", help="Free it from this rule only (* is every rule).")] = "*",
    bill: Annotated[
        float | None, typer.Option("--bill", min=0.0, help="A bill for it says this many USD per hour.")
    ] = None,
    note: Annotated[str, typer.Option("--note", help="Why; kept with the voucher.")] = "",
) -> None:
    """Believe an offer that waits in quarantine, from the next refresh on. What cannot be true stays rejected."""
    from hexcloud import wiring
    from hexcloud.domain.errors import ConfigError
    from hexcloud.domain.offer import OfferId
    from hexcloud.domain.prices import Voucher

    prices = wiring.open_prices()
    waiting = {held.offer_id: held for held in prices.held()}
    held = waiting.get(OfferId(offer))
    if held is None:
        from hexcloud.adapters.files import hint

        raise ConfigError(f"offer {offer!r} does not wait in quarantine{hint(offer, waiting)}; see `catalog doctor`")
    listed_usd = held.list_price * wiring.rates().get(held.currency, float("nan"))
    if bill is not None and not abs(bill - listed_usd) <= BILL_AGREES * listed_usd:
        raise ConfigError(f"the bill says {bill:g} USD/h and the listing {listed_usd:g}: that confirms nothing")
    by = "user" if bill is None else "bill"
    prices.vouch(Voucher(offer_id=held.offer_id, rule=rule, by=by, note=note, usd_per_hour=bill, at_s=time.time()))
    say(f"{offer} is trusted ({held.reason}); run `hexcloud catalog refresh` to take its price in")


def rate(
    currency: Annotated[str, typer.Argument(help="ISO code, such as EUR.")],
    usd: Annotated[float, typer.Argument(min=0.0, help="USD for one unit.")],
) -> None:
    """Set what one unit of a currency is worth. A new rate is no price shift: no node is moved for it."""
    from hexcloud import wiring
    from hexcloud.domain.errors import ConfigError

    if not (len(currency) == 3 and currency.isalpha()):
        raise ConfigError(f"currency {currency!r} is no ISO code; write three letters, such as EUR")
    if currency.upper() == "USD" or usd <= 0:
        raise ConfigError("the rate must be over 0, and USD has none")
    wiring.open_prices().save_rate(currency.upper(), usd, time.time())
    say(f"1 {currency.upper()} = {usd:g} USD from now on")
