"""`hexcloud catalog trust`, `distrust` and `rate`: what only the user can know about a price."""

import math
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from hexcloud.cli.output import say
from hexcloud.cli.rules import RULES

if TYPE_CHECKING:
    from hexcloud.domain.prices import Held, Voucher
    from hexcloud.domain.row import Belief

BILL_AGREES = 0.05
"""A bill confirms a listing when it differs by at most this share: taxes and rounding, not another machine."""
RATE_AGREES = 2.0
"""A rate over this multiple of the catalog's, or under one over it, is more likely a slip than news."""

Offer = Annotated[str, typer.Argument(help="Id of an offer in quarantine, as `hexcloud catalog doctor` prints it.")]
Trusted = Annotated[str, typer.Argument(help="Id of an offer that was trusted.")]
Note = Annotated[str, typer.Option("--note", help="Why; kept with the voucher.")]


def trust(
    offer: Offer,
    rule: Annotated[
        str | None, typer.Option("--rule", help="Free it from this rule (default: the one it waits under).")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", help="Whose price is meant, where several sources list it.")
    ] = None,
    bill: Annotated[
        float | None, typer.Option("--bill", min=0.0, help="A bill for it says this many USD per hour.")
    ] = None,
    note: Note = "",
) -> None:
    """Believe the price of an offer in quarantine, from the next refresh on. Another price of it waits again."""
    from hexcloud import wiring
    from hexcloud.domain.errors import ConfigError
    from hexcloud.domain.prices import Voucher

    _check_rule(rule)
    prices = wiring.open_prices()
    held = _meant(prices.held(), offer, rule, source)
    if held.rule == "missing_part" and bill is None:
        raise ConfigError(f"{held.reason}: only a bill for the whole machine can confirm such a sum (--bill USD/h)")
    listed_usd = held.list_price * wiring.rates().get(held.currency, math.nan)
    if bill is not None and not abs(bill - listed_usd) <= BILL_AGREES * listed_usd:
        raise ConfigError(f"the bill says {bill:g} USD/h and the listing {listed_usd:g}: that confirms nothing")
    voucher = Voucher(
        offer_id=held.offer_id,
        source=held.source,
        rule=held.rule,
        list_price=held.list_price,
        currency=held.currency,
        by="user" if bill is None else "bill",
        note=note,
        usd_per_hour=bill,
        at_s=time.time(),
    )
    prices.vouch(voucher)
    price = f"{held.list_price:g} {held.currency}/h of {held.source}"
    say(f"{offer} is trusted at {price} ({held.reason}); run `hexcloud catalog refresh` to take its price in")


def distrust(offer: Trusted, note: Note = "") -> None:
    """Take back all that was said for an offer by `trust`. A price that stood on it is dropped at once."""
    from hexcloud import wiring
    from hexcloud.adapters.files import hint
    from hexcloud.appraise.known import in_force
    from hexcloud.domain.errors import ConfigError
    from hexcloud.domain.prices import Voucher

    prices = wiring.open_prices()
    standing = in_force(prices.vouchers())
    words = [voucher for voucher in standing if voucher.offer_id == offer]
    if not words:
        near = hint(offer, {voucher.offer_id for voucher in standing})
        raise ConfigError(f"nobody has said that offer {offer!r} may be trusted{near}; see `catalog trust`")
    fallen = _standing_on(words, prices.current())
    back = Voucher(offer_id=words[0].offer_id, by="user", note=note, at_s=time.time(), takes_back=True)
    prices.vouch(back, fallen)
    dropped = f"; {len(fallen)} price{'s' * (len(fallen) != 1)} dropped" if fallen else ""
    say(f"{offer} is trusted no more{dropped}; what others say of it comes with the next `hexcloud catalog refresh`")


def rate(
    currency: Annotated[str, typer.Argument(help="ISO code, such as EUR.")],
    usd: Annotated[float, typer.Argument(min=0.0, help="USD for one unit.")],
    force: Annotated[
        bool, typer.Option("--force", help="Take it although it is over twice, or under half, the catalog's rate.")
    ] = False,
) -> None:
    """Set what one unit of a currency is worth. A new rate is no price shift: no node is moved for it."""
    from hexcloud import wiring
    from hexcloud.adapters.files import load_rates
    from hexcloud.domain.errors import ConfigError

    code = currency.upper()
    if not (len(code) == 3 and code.isascii() and code.isalpha()):
        raise ConfigError(f"currency {currency!r} is no ISO code; write three letters, such as EUR")
    if code == "USD" or not 0 < usd < math.inf:
        raise ConfigError("the rate must be a number over 0, and USD has none")
    usual = load_rates().get(code, usd)
    if not force and not usual / RATE_AGREES <= usd <= usual * RATE_AGREES:
        raise ConfigError(f"1 {code} = {usd:g} USD is far from the catalog's {usual:g}; add --force if it is right")
    wiring.open_prices().save_rate(code, usd, time.time())
    say(f"1 {code} = {usd:g} USD from now on")


def _check_rule(rule: str | None) -> None:
    from hexcloud.adapters.files import suggest
    from hexcloud.domain.errors import ConfigError

    if rule is not None and rule not in RULES:
        raise ConfigError(f"--rule {rule!r} is no rule of the gate{suggest(rule, RULES)}")


def _meant(waiting: "tuple[Held, ...]", offer: str, rule: str | None, source: str | None) -> "Held":
    """Return the one listing that is meant. Raises ConfigError when it does not wait, or several do."""
    from hexcloud.adapters.files import hint
    from hexcloud.domain.errors import ConfigError

    of_it = [held for held in waiting if held.offer_id == offer]
    if not of_it:
        near = hint(offer, {held.offer_id for held in waiting})
        raise ConfigError(f"offer {offer!r} does not wait in quarantine{near}; see `catalog doctor`")
    chosen = [held for held in of_it if rule in (None, held.rule) and source in (None, held.source)]
    if not chosen:
        raise ConfigError(f"offer {offer!r} does not wait so; it waits {_places(of_it)}")
    if len({(held.source, held.rule) for held in chosen}) > 1:
        raise ConfigError(f"offer {offer!r} waits {_places(chosen)}: name one with --source and --rule")
    return max(chosen, key=lambda held: held.list_price)  # the dearer of two in one list counts, as in the market


def _places(waiting: "Iterable[Held]") -> str:
    said = (f"at {held.source} under {held.rule} ({held.list_price:g} {held.currency}/h)" for held in waiting)
    return ", ".join(sorted(set(said)))


def _standing_on(words: "list[Voucher]", believed: "tuple[Belief, ...]") -> "tuple[Belief, ...]":
    """Return the prices of the same machine, in any zone and source, that agree with a price that was vouched for.

    What another source believed on the strength of it goes too; all that stands by itself is back with a refresh.
    """
    from hexcloud.appraise.known import agree

    def falls(belief: "Belief") -> bool:
        return any(
            _pool(belief.row.id) == _pool(word.offer_id)
            and word.currency == belief.row.currency
            and word.list_price is not None
            and agree(word.list_price, belief.row.list_price)
            for word in words
        )

    return tuple(belief for belief in believed if falls(belief))


def _pool(offer_id: str) -> tuple[str, ...]:
    cloud, region, _, *machine_and_tenure = offer_id.split("/")
    return (cloud, region, *machine_and_tenure)
