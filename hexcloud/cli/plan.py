"""`hexcloud plan`: what would be rented, for how much, and why not something else."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hexcloud.cli.options import AsJson, Clouds, MaxUsdPerHour, Model, PolicyName, RunFile, Target
from hexcloud.cli.output import console, print_json
from hexcloud.cli.planned import make, plan_fields, plan_view
from hexcloud.cli.spec import spec_of

if TYPE_CHECKING:
    from hexcloud.planner.explain import WhyNot
    from hexcloud.wiring import PlanInput


def plan(
    model: Model = None,
    target_throughput: Target = None,
    max_usd_per_hour: MaxUsdPerHour = None,
    policy: PolicyName = None,
    cloud: Clouds = None,
    fleet: Annotated[
        Path | None, typer.Option("--fleet", help="Plan for the machines of this YAML file instead of the market's.")
    ] = None,
    why: Annotated[
        str | None,
        typer.Option(
            "--why", help="Say why this GPU, offer or instance type (* is any text) is not in the market's plan."
        ),
    ] = None,
    run: RunFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the cheapest fleet for a target, its price, its proof and what simpler buyers pay. Rents nothing."""
    from hexcloud import wiring
    from hexcloud.domain.errors import ConfigError

    if fleet and why:
        raise ConfigError("--why asks about the market's offers and --fleet plans without them: use one of the two")
    options: dict[str, object] = {"model": model, "policy": policy, "cloud": cloud}
    spec = spec_of(run, options | {"target": target_throughput, "max_usd_per_hour": max_usd_per_hour})
    given = wiring.fleet_input(spec, fleet) if fleet else wiring.snapshot_input(spec)
    if why:
        _require_known(why, given)
    planned = make(given, spec.target, is_own_fleet=fleet is not None, with_baselines=as_json or not why)
    answer = _why(why, given) if why else None
    if as_json:
        print_json(plan_fields(planned) | ({"why": answer.model_dump(mode="json")} if answer else {}))
        return
    out = console()
    out.print(plan_view(planned))
    if answer:
        out.print(f"\nwhy not {why}: {answer.reason}")


def _require_known(pattern: str, given: "PlanInput") -> None:
    """Raise ConfigError when the market lists nothing of a name: found at once, before anything is solved."""
    from hexcloud.adapters.files import hint
    from hexcloud.domain.errors import ConfigError
    from hexcloud.planner.explain import matching_offers

    offers = given.market.offers
    if not matching_offers(pattern, given.market):
        meant = hint(pattern, {name for offer in offers for name in (offer.gpu, offer.instance_type, offer.id)})
        raise ConfigError(f"--why {pattern}: the market lists no such GPU, offer or instance type{meant}")


def _why(pattern: str, given: "PlanInput") -> "WhyNot":
    from hexcloud.planner.explain import why_not

    return why_not(pattern, given.market, given.workload, given.policy)
