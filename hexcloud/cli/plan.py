"""`hexcloud plan`: what would be rented, for how much, and why not something else."""

from typing import TYPE_CHECKING

from hexcloud.cli.options import (
    AsJson,
    Budget,
    Clouds,
    Explain,
    FleetFile,
    FrontierFile,
    HtmlFile,
    MaxUsdPerHour,
    Model,
    PolicyName,
    RunFile,
    Steps,
    Target,
    Why,
)
from hexcloud.cli.output import console, print_json
from hexcloud.cli.planned import make, plan_fields, plan_view
from hexcloud.cli.spec import spec_of
from hexcloud.cli.told import Wanted

if TYPE_CHECKING:
    from hexcloud.wiring import PlanInput


def plan(
    model: Model = None,
    target_throughput: Target = None,
    max_usd_per_hour: MaxUsdPerHour = None,
    policy: PolicyName = None,
    budget: Budget = None,
    steps: Steps = None,
    cloud: Clouds = None,
    fleet: FleetFile = None,
    why: Why = None,
    explain: Explain = False,
    frontier: FrontierFile = None,
    html: HtmlFile = None,
    run: RunFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the cheapest fleet for a target, its price, its proof and what simpler buyers pay. Rents nothing."""
    from hexcloud import wiring

    wanted = Wanted(why=why, explain=explain, frontier=frontier, html=html)
    wanted.require_possible()
    options: dict[str, object] = {"model": model, "policy": policy, "cloud": cloud, "budget": budget, "steps": steps}
    spec = spec_of(run, options | {"target": target_throughput, "max_usd_per_hour": max_usd_per_hour})
    given = wiring.fleet_input(spec, fleet) if fleet else wiring.snapshot_input(spec)
    if fleet:
        wanted.require_possible(wiring.unpriced(given.market))
    if why is not None:
        _require_known(why, given)
    is_long = explain or html is not None
    with_baselines = as_json or why is None or is_long
    planned = make(given, spec.target, fleet is not None, with_baselines=with_baselines, with_sky=is_long)
    if not as_json:
        console().print(plan_view(planned))
    told = wanted.answer(planned)
    if as_json:
        print_json(plan_fields(planned) | told.fields())
    else:
        console().print(told.view())


def _require_known(pattern: str, given: "PlanInput") -> None:
    """Raise ConfigError when the market lists nothing of a name: found at once, before anything is solved."""
    from hexcloud.adapters.files import hint
    from hexcloud.domain.errors import ConfigError
    from hexcloud.planner.explain import matching_offers

    offers = given.market.offers
    if not matching_offers(pattern, given.market):
        meant = hint(pattern, {name for offer in offers for name in (offer.gpu, offer.instance_type, offer.id)})
        asked = pattern or "an empty name"
        raise ConfigError(f"--why {asked}: the market lists no such GPU, offer or instance type{meant}")
