"""Facts that every row of the bundled catalog must state, and what the gate makes of public rows nobody cleaned."""

import csv
import math
from datetime import date
from pathlib import Path

import pytest
import yaml

from hexcloud.adapters.clouds.gcp_quotas import GLOBAL_KEY
from hexcloud.adapters.files import catalog_root, load_gpus, load_odd_counts, load_rates, load_usual
from hexcloud.adapters.markets.snapshot import COLUMNS, SnapshotMarket, read_rows
from hexcloud.appraise.gate import findings_of, gate, offers_of
from hexcloud.appraise.known import Known
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.market import Outcome, Quota
from hexcloud.domain.row import Row
from hexcloud.domain.run import RunSpec
from hexcloud.planner.plan import make_plan
from hexcloud.wiring import snapshot_input

FILES = sorted((catalog_root() / "offers").glob("*.csv"))
PUBLIC_ROWS = Path(__file__).parents[2].parent / "shared" / "data" / "skypilot-catalog"
NOW_S = 1_785_000_000.0
OVER_ALL = "quota_global"
"""A column that only clouds with a limit over all regions have."""


def test_the_clouds_we_promise_are_there() -> None:
    assert {path.stem for path in FILES} >= {"aws", "gcp", "lambda", "nebius", "verda", "runpod"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_row_states_its_facts(path: Path) -> None:
    gpus = load_gpus()
    sources = yaml.safe_load((path.parent / "_sources.yaml").read_text())["sources"]
    with path.open(newline="") as file:
        lines = csv.DictReader(file)
        assert [name for name in lines.fieldnames or () if name != OVER_ALL] == list(COLUMNS)
        for line in lines:
            where = f"{path.name}: {line['region']} {line['instance_type']} {line['tenure']}"
            assert 0 < float(line["usd_per_hour"]) < math.inf, where
            assert line["gpu"] in gpus, where
            assert int(line["gpu_count"]) in {1, 2, 4, 8, 16}, where
            assert date(2024, 1, 1) <= date.fromisoformat(line["as_of"]) <= date(2026, 12, 31), where
            assert line["source"] in sources, where
            assert line["region"] and "/" not in line["region"] + line["zone"] + line["instance_type"], where


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_ids_are_unique_and_lines_are_sorted(path: Path) -> None:
    ids = [row.id for row in read_rows(path)]
    assert len(ids) == len(set(ids))
    places = [(row.region, row.zone or "", row.instance_type, row.tenure) for row in read_rows(path)]
    assert places == sorted(places)


def test_no_bundled_price_passes_for_the_clouds_own_word() -> None:
    """Policies limit the age of live prices; the snapshot's may be as old as it is."""
    assert not [offer.id for offer in SnapshotMarket().market(NOW_S).offers if offer.is_live]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_google_cloud_and_nobody_else_has_a_limit_over_all_regions(path: Path) -> None:
    assert {row.quota_global for row in read_rows(path)} == {GLOBAL_KEY if path.stem == "gcp" else None}


def test_a_plan_stays_within_what_is_left_over_all_regions() -> None:
    """Of Google Cloud and Lambda: without a limit GPUs of Google are rented, and then as many as are left."""
    given = snapshot_input(RunSpec(cloud=("gcp", "lambda")))

    def gpus_of_google(*quotas: Quota) -> int:
        market = given.market.model_copy(update={"quotas": quotas})
        slots = make_plan(market, given.workload, given.policy, FleetState()).plan.placement.slots
        offers = [market.offer(slot.offer_id) for slot in slots]
        return sum(offer.gpu_count for offer in offers if offer is not None and offer.cloud == "gcp")

    free = gpus_of_google()
    assert free > 1
    assert gpus_of_google(Quota(key=GLOBAL_KEY, left=float(free - 1))) <= free - 1
    assert gpus_of_google(Quota(key=GLOBAL_KEY, left=0.0)) == 0


def test_every_source_is_used() -> None:
    used = {row.source for path in FILES for row in read_rows(path)}
    assert used == set(yaml.safe_load((catalog_root() / "offers" / "_sources.yaml").read_text())["sources"])


def test_no_row_of_ours_is_rejected_and_few_are_doubted() -> None:
    market = SnapshotMarket().market(NOW_S)
    assert [found for found in market.findings if found.outcome is Outcome.REJECT] == []
    assert len([found for found in market.findings if found.outcome is Outcome.QUARANTINE]) <= 3
    assert 10 <= len(market.findings) <= 0.05 * len(market.offers)


def test_the_market_is_worldwide_and_mixed() -> None:
    market = SnapshotMarket().market(NOW_S)
    assert 800 <= len(market.offers) <= 2500
    assert {offer.gpu for offer in market.offers} >= {"T4", "V100", "A10G", "L4", "L40S", "H100", "H200", "B200"}
    assert {offer.tenure.value for offer in market.offers} == {"on_demand", "spot"}
    assert len({(offer.cloud, offer.region) for offer in market.offers}) >= 40


def test_egress_is_priced_for_every_cloud_and_scope() -> None:
    market = SnapshotMarket().market(NOW_S)
    priced = {(price.cloud, price.scope) for price in market.network.egress}
    assert priced >= {(path.stem, link.scope) for path in FILES for link in market.network.links}
    assert len(market.network.links) == 4


@pytest.fixture
def public_rows() -> list[Row]:
    """Rows of public catalogs as they were published, defects and all."""
    if not PUBLIC_ROWS.is_dir():
        pytest.skip("the public catalog rows are not beside this checkout")
    return [row for path in sorted(PUBLIC_ROWS.glob("*.csv")) for row in _public(path)]


def _public(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return [
            Row(
                cloud=line.get("Cloud", path.stem),
                region=line["Region"],
                zone=line.get("AvailabilityZone") or None,
                instance_type=line["InstanceType"] or f"{line['AcceleratorCount']}x{line['AcceleratorName']}",
                tenure=tenure,
                gpu=line["AcceleratorName"],
                gpu_count=float(line["AcceleratorCount"]),
                vcpus=1,
                memory_gib=1,
                network_gb_per_s=1,
                price=float(line[column]) if line[column] else math.nan,
                as_of="2024-05-01",
                source=path.stem,
            )
            for line in csv.DictReader(file)
            if line.get("AcceleratorName") and line.get("AcceleratorCount")
            for column, tenure in (("Price", "on_demand"), ("SpotPrice", "spot"))
        ]


@pytest.fixture
def known() -> Known:
    return Known(usual_usd_per_gpu_hour=load_usual(), usd_per_unit=load_rates(), odd_counts=load_odd_counts())


def test_known_defects_of_public_rows_never_pass(public_rows: list[Row], known: Known) -> None:
    offers = offers_of(gate(public_rows, known))
    assert len(offers) > 3000
    assert all(offer.usd_per_hour > 0 for offer in offers)
    assert not [offer for offer in offers if offer.cloud == "azure" and offer.gpu_count in {6, 12}]
    floor = [offer for offer in offers if offer.instance_type == "p5en.48xlarge" and "apse3" in str(offer.zone)]
    assert floor and not any(offer.proven for offer in floor if offer.tenure == "spot")


def test_few_good_public_rows_are_refused(public_rows: list[Row], known: Known) -> None:
    priced = [row for row in public_rows if row.price > 0]
    refused = [found for found in findings_of(gate(priced, known)) if found.outcome is not Outcome.FLAG]
    assert len(refused) < 0.03 * len(priced)
