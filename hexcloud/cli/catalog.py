"""`hexcloud catalog`: the facts that plans are made from."""

from typing import TYPE_CHECKING, Annotated

import typer

from hexcloud.cli.options import AsJson, Clouds
from hexcloud.cli.output import console, print_json, say

if TYPE_CHECKING:
    from hexcloud.domain.market import Market
    from hexcloud.domain.offer import Offer

app = typer.Typer(help="Look at offers, GPUs and models.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_offers(
    cloud: Clouds = None,
    gpu: Annotated[str | None, typer.Option("--gpu", help="Only offers with this GPU (* is any text).")] = None,
    spot: Annotated[bool, typer.Option("--spot", help="Only spot offers.")] = False,
    findings: Annotated[
        bool, typer.Option("--findings", help="List instead the rows that were not believed as they stood.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List what can be rented, cheapest GPU first."""
    from fnmatch import fnmatchcase

    market = _market(cloud)
    if findings:
        _list_findings(market, as_json)
        return
    kept = [
        offer
        for offer in market.offers
        if (gpu is None or fnmatchcase(offer.gpu.lower(), gpu.lower())) and (not spot or offer.tenure == "spot")
    ]
    kept.sort(key=lambda offer: (offer.usd_per_gpu_hour, offer.id))
    if not kept:
        _say_nothing_matches(gpu, market)
    if as_json:
        print_json([offer.model_dump(mode="json") for offer in kept])
    elif kept:
        _table(kept)


def _say_nothing_matches(gpu: str | None, market: "Market") -> None:
    from hexcloud.adapters.files import hint

    known = {offer.gpu.lower() for offer in market.offers}
    meant = "" if gpu is None or gpu.lower() in known else hint(gpu, {offer.gpu for offer in market.offers})
    say(f"no offer matches{meant}")


@app.command("show", short_help="Show all that is known of one name.")
def show(
    name: Annotated[str, typer.Argument(help="A GPU, a model, or an offer's id or instance type (* is any text).")],
    as_json: AsJson = False,
) -> None:
    """Show everything known of one GPU, one model, or the offers of a name."""
    from hexcloud.adapters.files import load_gpus, load_models

    facts = {key.lower(): value for key, value in {**load_gpus(), **load_models()}.items()}
    fact = facts.get(name.lower())
    if fact is None:
        _show_offers(name, as_json)
    elif as_json:
        print_json(fact.model_dump(mode="json"))
    else:
        for field, value in fact.model_dump(mode="json").items():
            typer.echo(f"{field:18} {value}")


def _show_offers(name: str, as_json: bool) -> None:
    from fnmatch import fnmatchcase

    from hexcloud.domain.errors import ConfigError

    wanted = name.lower()
    offers = [
        offer
        for offer in _market(None).offers
        if any(fnmatchcase(text.lower(), wanted) for text in (offer.id, offer.instance_type))
    ]
    if not offers:
        raise ConfigError(
            f"{name!r} is no GPU, model, offer or instance type of the catalog; see `hexcloud catalog list`"
        )
    if as_json:
        print_json([offer.model_dump(mode="json") for offer in offers])
    elif len(offers) > 1:
        _table(offers)
    else:
        for field, value in offers[0].model_dump(mode="json").items():
            typer.echo(f"{field:18} {value}")


def _market(clouds: list[str] | None) -> "Market":
    from hexcloud.adapters.markets.snapshot import SnapshotMarket

    return SnapshotMarket(tuple(clouds or ())).market(0.0)


def _table(offers: list["Offer"]) -> None:
    from rich.table import Table

    table = Table("offer", "GPUs", "USD/h", "USD/GPU-h", "proven", "as of", box=None)
    for offer in offers:
        table.add_row(
            offer.id,
            f"{offer.gpu_count} x {offer.gpu}",
            f"{offer.usd_per_hour:.2f}",
            f"{offer.usd_per_gpu_hour:.3f}",
            "yes" if offer.proven else "no",
            f"{offer.as_of:%Y-%m-%d}",
        )
    console().print(table)


def _list_findings(market: "Market", as_json: bool) -> None:
    if as_json:
        print_json([finding.model_dump(mode="json") for finding in market.findings])
        return
    for finding in market.findings:
        typer.echo(f"{finding.outcome.value:10} {finding.row}: {finding.field}: {finding.reason}")
