"""The only place that knows every adapter. Imports them inside functions, so that a command loads what it uses."""

from hexcloud.wiring.market import believed_market, cloud_checks, evidence, price_facts, rates, refresh_prices
from hexcloud.wiring.places import factors_file, home, open_prices, open_store
from hexcloud.wiring.plan import (
    PlanInput,
    cloud_needs,
    fleet_input,
    policy_of,
    run_input,
    snapshot_input,
    workload_of,
)
from hexcloud.wiring.run import (
    clock,
    controller,
    coordinator,
    market_source,
    new_run,
    provisioner,
    report_of,
    resumed_run,
    run_dir,
    secrets_of,
    timer,
    with_budget,
)

__all__ = [
    "PlanInput",
    "believed_market",
    "clock",
    "cloud_checks",
    "cloud_needs",
    "controller",
    "coordinator",
    "evidence",
    "factors_file",
    "fleet_input",
    "home",
    "market_source",
    "new_run",
    "open_prices",
    "open_store",
    "policy_of",
    "price_facts",
    "provisioner",
    "rates",
    "refresh_prices",
    "report_of",
    "resumed_run",
    "run_dir",
    "run_input",
    "secrets_of",
    "snapshot_input",
    "timer",
    "with_budget",
    "workload_of",
]
