"""`hexcloud catalog`: the facts that plans are made from."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from hexcloud.cli import doctor, export, history, refresh, vouch
from hexcloud.cli.ages import age
from hexcloud.cli.options import AsJson, Clouds
from hexcloud.cli.output import console, print_json, say

if TYPE_CHECKING:
    from hexcloud.domain.market import Market
    from hexcloud.domain.offer import Offer

app = typer.Typer(help="Read, judge and look at prices, GPUs and models.", no_args_is_help=True, rich_markup_mode=None)
app.command("refresh", short_help="Read live prices and quotas.")(refresh.refresh)
app.command("doctor", short_help="Say which rows are not believed, and why.")(doctor.doctor)
app.command("history", short_help="Show how a price moved.")(history.history)
app.command("trust", short_help="Believe an offer in quarantine.")(vouch.trust)
app.command("distrust", short_help="Take back what was trusted.")(vouch.distrust)
app.command("rate", short_help="Set what a currency is worth.")(vouch.rate)
app.command("export", short_help="Write SkyPilot's catalog files from ours.")(export.export)


@app.command("list")
def list_offers(
    cloud: Clouds = None,
    region: Annotated[str | None, typer.Option("--region", help="Only this region (* is any text).")] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", help="Only offers with this GPU (* is any text).")] = None,
    spot: Annotated[bool, typer.Option("--spot", help="Only spot offers.")] = False,
    on_demand: Annotated[bool, typer.Option("--on-demand", help="Only on-demand offers.")] = False,
    max_usd_per_gpu_hour: Annotated[
        float | None, typer.Option("--max-usd-per-gpu-hour", help="Only offers at most this dear.", min=0.0)
    ] = None,
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
    tenure = None if spot == on_demand else ("spot" if spot else "on_demand")
    kept = [
        offer
        for offer in market.offers
        if (gpu is None or fnmatchcase(offer.gpu.lower(), gpu.lower()))
        and (region is None or fnmatchcase(offer.region, region))
        and tenure in (None, offer.tenure.value)
        and (max_usd_per_gpu_hour is None or offer.usd_per_gpu_hour <= max_usd_per_gpu_hour)
    ]
    kept.sort(key=lambda offer: (offer.usd_per_gpu_hour, offer.id))
    if not kept:
        _say_nothing_matches(gpu, market)
    if as_json:
        print_json([_facts(offer) for offer in kept])
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
    """Show everything known of one GPU, one model, or the offers of a name; of one offer also what each source says."""
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
    if len(offers) > 1:
        print_json([_facts(offer) for offer in offers]) if as_json else _table(offers)
        return
    said = _evidence(offers[0])
    if as_json:
        print_json([{**_facts(offers[0]), "evidence": said}])
        return
    for field, value in _facts(offers[0]).items():
        typer.echo(f"{field:22} {value}")
    for line in said:
        typer.echo(
            f"{'says ' + str(line['source']):22} {line['usd_per_hour']:.4g} USD/h, {line['age']} old, {line['outcome']}"
        )


def _evidence(offer: "Offer") -> list[dict[str, str | float]]:
    """What every source says of an offer, the believed one first, and why each other one lost."""
    from hexcloud import wiring

    now_s = time.time()
    return [
        {
            "source": said.source,
            "usd_per_hour": said.usd_per_hour,
            "as_of": said.as_of.isoformat(),
            "age": age(now_s - said.as_of.timestamp()),
            "outcome": reason,
        }
        for said, reason in wiring.evidence(offer.id)
    ]


def _facts(offer: "Offer") -> dict[str, object]:
    """An offer's fields, with the age of its price."""
    age_s = time.time() - offer.as_of.timestamp()
    return {
        **offer.model_dump(mode="json"),
        "usd_per_gpu_hour": offer.usd_per_gpu_hour,
        "price_age_h": round(age_s / 3600, 2),
    }


def _market(clouds: list[str] | None) -> "Market":
    from hexcloud import wiring

    return wiring.believed_market(tuple(clouds or ())).market(time.time())


def _table(offers: list["Offer"]) -> None:
    from rich.table import Table

    now_s = time.time()
    table = Table("offer", "GPUs", "USD/h", "USD/GPU-h", "proven", "price age", box=None)
    for offer in offers:
        table.add_row(
            offer.id,
            f"{offer.gpu_count} x {offer.gpu}",
            f"{offer.usd_per_hour:.2f}",
            f"{offer.usd_per_gpu_hour:.3f}",
            "yes" if offer.proven else "no",
            age(now_s - offer.as_of.timestamp()),
        )
    console().print(table)


def _list_findings(market: "Market", as_json: bool) -> None:
    if as_json:
        print_json([finding.model_dump(mode="json") for finding in market.findings])
        return
    for finding in market.findings:
        typer.echo(f"{finding.outcome.value:10} {finding.row}: {finding.field}: {finding.reason}")
