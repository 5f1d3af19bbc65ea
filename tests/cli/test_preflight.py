import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hexcloud import wiring
from hexcloud.cli.preflight import require_accounts
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Market
from hexcloud.domain.plan import ExecutionPlan
from hexcloud.domain.run import RunSpec
from hexcloud.planner.plan import make_plan

CHECKS = ["python", "libraries", "catalogs", "solver", "store", "memory", "disk", "network"]


def test_every_check_says_what_it_found(cli: Callable[..., Any]) -> None:
    said = cli("preflight", "--json")
    answer = json.loads(said.out)
    assert [check["name"] for check in answer["checks"]] == CHECKS
    assert said.code == (0 if answer["ok"] else 1)
    found = {check["name"]: check for check in answer["checks"]}
    assert found["catalogs"]["ok"]
    assert "offers of 202" in found["catalogs"]["found"], "the days of the oldest and the newest price"
    assert "USD/h" in found["solver"]["found"]


def test_what_would_go_wrong_is_said_and_exits_1(cli: Callable[..., Any], home: Path) -> None:
    home.parent.mkdir(exist_ok=True)
    home.write_text("a file where the store's folder should be")
    said = cli("preflight")
    assert said.code == 1
    assert "FAIL store" in said.out


def planned_on_aws() -> tuple[ExecutionPlan, Market]:
    given = wiring.snapshot_input(RunSpec(cloud=("aws",), target="10k"))
    return make_plan(given.market, given.workload, given.policy, FleetState()).plan, given.market


def test_an_account_that_would_refuse_stops_a_run_before_it_rents_and_each_reason_is_a_line(moto: Any) -> None:
    plan, market = planned_on_aws()
    moto.tell(faults=[{"do": "expired"}])
    with pytest.raises(ConfigError, match=r"nothing was rented, since it would fail:\n  aws credentials: .*expired"):
        require_accounts(plan, market)


def test_quota_that_the_plan_has_not_got_is_one_of_the_reasons(moto: Any) -> None:
    plan, market = planned_on_aws()
    moto.tell(quotas={"*": {"L-417A185B": 0, "L-DB2E81BA": 0, "L-3819A6DF": 0, "L-7212CCBC": 0, "L-34B43A08": 0}})
    with pytest.raises(ConfigError, match=r"vCPUs needed, 0 left of 0; ask AWS for more: Service Quotas"):
        require_accounts(plan, market)
