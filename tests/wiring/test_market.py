"""The market as a plan sees it: the bundle, what refreshes brought, and what the fleet learned."""

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hexcloud import wiring
from hexcloud.adapters.markets.sources import PriceQuestion
from hexcloud.controller.needs import CloudNeeds
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.fleet import Node, NodeStatus, node_id
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.run import RunSpec

HEADER = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "sky"
    (folder / "nebius").mkdir(parents=True)
    (folder / "nebius" / "vms.csv").write_text(
        HEADER + "gpu-h100-sxm_8gpu-128vcpu-1600gb,H100-SXM,8,128,1600,21.5,eu-north1,,9.5\n"
    )
    return folder


def test_before_the_first_refresh_nothing_is_written(home: Path) -> None:
    assert wiring.believed_market(("nebius",)).market(0.0).offers
    assert not home.exists()


def test_a_refresh_is_what_the_next_plan_stands_on_and_the_bundle_stays_as_evidence(files: Path) -> None:
    (report,) = wiring.refresh_prices(PriceQuestion(folder=files, as_of=datetime.now(UTC)))
    assert (report.problem, report.changes) == ("", 2)
    offers = wiring.snapshot_input(RunSpec(cloud=("nebius",))).market.offers
    name = "nebius/eu-north1/-/gpu-h100-sxm_8gpu-128vcpu-1600gb/on_demand"
    (offer,) = [offer for offer in offers if offer.id == name]
    assert offer.usd_per_hour == 21.5
    (wins, word), (lost, reason) = wiring.evidence(offer.id)
    assert (wins.usd_per_hour, word) == (21.5, "wins")
    assert lost.source == "skypilot-v8" and "older" in reason


def test_the_users_rate_wins_over_the_catalogs() -> None:
    assert wiring.rates()["USD"] == 1.0
    wiring.open_prices().save_rate("EUR", 2.0, 0.0)
    assert wiring.rates()["EUR"] == wiring.price_facts().usd_per_unit["EUR"] == 2.0


def test_what_runs_on_a_real_cloud_taught_is_put_on_the_offers() -> None:
    spec = RunSpec(cloud=("nebius",), target="10 samples/s")
    run = wiring.new_run(spec, wiring.run_input(spec), samples_per_s=10.0)
    run = run.model_copy(update={"spec": spec.model_copy(update={"provider": "skypilot"})})
    store = wiring.open_store()
    store.save_run(run)
    pool = wiring.snapshot_input(spec).market.offers[0].id
    now_s = time.time()
    slot = SlotName("rollout-0")
    node = Node(
        id=node_id(run.id, slot, 1),
        run_id=run.id,
        slot=slot,
        attempt=1,
        role=Role.ROLLOUT,
        offer_id=pool,
        status=NodeStatus.READY,
        requested_at_s=now_s - 2000,
        ready_at_s=now_s - 1000,
    )
    store.save_node(node)
    offer = wiring.believed_market().market(now_s).offer(pool)
    assert offer is not None and offer.startup_s is not None
    assert 300 < offer.startup_s < 1000, "between the prior and what was seen"
    assert pool in wiring.price_facts().proven


def test_only_clouds_with_an_api_can_be_checked() -> None:
    with pytest.raises(ConfigError, match="only aws and gcp"):
        wiring.cloud_checks("nebius", CloudNeeds(machines=(), regions=(), types={}, quota_units={}))
