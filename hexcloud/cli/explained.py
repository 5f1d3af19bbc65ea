"""explained: what holds a plan where it is, in dollars, and why notable GPU types are not in it."""

from typing import TYPE_CHECKING

from hexcloud.cli.output import say

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hexcloud.cli.planned import Planned
    from hexcloud.planner.explain import WhyNot
    from hexcloud.planner.shadow import ShadowPrice

NOTABLE = 5
"""GPU types that a report explains; each takes about a second."""
_CENT = 0.01
_DOMAINS_SHOWN = 4


def price_rules(planned: "Planned") -> tuple["ShadowPrice", ...]:
    """Return the price of each binding rule of a market's plan."""
    from hexcloud.planner.shadow import rule_prices

    given = planned.given
    say(f"pricing {len(planned.result.plan.allocation.proof.binding)} binding rules ...")
    return rule_prices(given.market, given.workload, given.policy, planned.result.plan.allocation)


def explain_notable(planned: "Planned") -> tuple["WhyNot", ...]:
    """Return why the GPU types with the cheapest memory bandwidth that the plan leaves out are not in it."""
    from hexcloud.planner.explain import notable_gpus, why_not

    given = planned.given
    gpus = notable_gpus(given.market, planned.result.plan.allocation)[:NOTABLE]
    answers = []
    for gpu in gpus:
        say(f"asking why not {gpu} ...")
        answers.append(why_not(gpu, given.market, given.workload, given.policy))
    return tuple(answers)


def gain_in_words(price: "ShadowPrice") -> str:
    """Return what one unit of a rule is worth."""
    gain = price.gain_per_unit
    if gain is None:
        return "no plan"
    spelt = f"{gain:.0f}" if price.gain_unit == "tok/s" else f"{gain:.4g}" if 0 < gain < _CENT else f"{gain:.2f}"
    return f"{spelt} {price.gain_unit} per {price.unit}"


def rules_in_short(rules: tuple[str, ...]) -> str:
    """Return the names of rules; of very many failure domains the first few and the number of the others."""
    domains = [rule for rule in rules if rule.startswith("survive[")]
    others = [rule for rule in rules if rule not in domains]
    more = len(domains) - _DOMAINS_SHOWN
    return ", ".join([*others, *domains[:_DOMAINS_SHOWN], *([f"{more} more domains"] if more > 0 else [])])


def rules_view(prices: tuple["ShadowPrice", ...]) -> "RenderableType":
    """Return the binding rules for a reader."""
    from rich.table import Table

    table = Table(
        title="What holds the plan where it is: each rule a unit looser, solved again",
        caption="Machines come whole: this is what the one unit is worth; the next may be worth nothing, or more.",
        title_justify="left",
        caption_justify="left",
    )
    for name in ("rule", "looser by", "worth"):
        table.add_column(name, overflow="fold")
    for price in prices:
        table.add_row(price.rule, price.change, gain_in_words(price))
    return table


def rules_fields(prices: tuple["ShadowPrice", ...]) -> list[dict[str, object]]:
    """Return the binding rules for a machine."""
    return [price.model_dump(mode="json") for price in prices]
