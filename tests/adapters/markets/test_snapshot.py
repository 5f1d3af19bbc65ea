import shutil
from pathlib import Path

import pytest

from hexcloud.adapters.files import catalog_root
from hexcloud.adapters.markets.snapshot import SnapshotMarket, read_rows
from hexcloud.domain.errors import ConfigError, MarketError

NOW_S = 1_785_000_000.0


@pytest.fixture
def own_catalog(tmp_path: Path) -> Path:
    """A copy of the bundled catalog that a test may spoil."""
    return shutil.copytree(catalog_root(), tmp_path / "catalogs")


def test_the_snapshot_is_a_market_sorted_by_id_and_without_twins() -> None:
    market = SnapshotMarket().market(NOW_S)
    ids = [offer.id for offer in market.offers]
    assert ids == sorted(set(ids))
    assert market.as_of.timestamp() == NOW_S
    assert all(offer.gpu in market.gpus for offer in market.offers)


def test_the_same_moment_gives_the_same_market_and_time_only_moves_as_of() -> None:
    source = SnapshotMarket()
    first, later = source.market(NOW_S), source.market(NOW_S + 60)
    assert first == source.market(NOW_S)
    assert later.offers == first.offers
    assert later.as_of > first.as_of


def test_asking_for_some_clouds_changes_nothing_about_them() -> None:
    every = SnapshotMarket().market(NOW_S)
    some = SnapshotMarket(("gcp", "nebius")).market(NOW_S)
    assert some.offers == tuple(offer for offer in every.offers if offer.cloud in {"gcp", "nebius"})
    assert {found.row.split("/")[0] for found in some.findings} <= {"gcp", "nebius"}


def test_an_unknown_cloud_names_the_likely_one() -> None:
    with pytest.raises(ConfigError, match="cloud 'nebus' is unknown; did you mean nebius"):
        SnapshotMarket(("nebus",))


def test_floor_prices_where_no_hardware_is_are_flagged() -> None:
    market = SnapshotMarket().market(NOW_S)
    floor = market.offer("aws/ap-southeast-3/apse3-az1/p5e.48xlarge/spot")
    true = market.offer("aws/us-east-1/use1-az5/p5.48xlarge/spot")
    assert floor is not None and not floor.proven
    assert true is not None and true.proven


def test_untrue_lines_become_findings_and_leave_the_rest_alone(own_catalog: Path) -> None:
    before = SnapshotMarket(root=own_catalog).market(NOW_S)
    good = "moon,,rocket,{},H100,8,96,768,50,{},,,2026-07-20,rumour\n"
    with (own_catalog / "offers" / "aws.csv").open("a") as file:
        file.write(good.format("on_demand", "0"))
        file.write(good.format("spot", "nan"))
        file.write(good.format("on_demand", "cheap").replace("rocket", "sled"))
    after = SnapshotMarket(root=own_catalog).market(NOW_S)
    assert after.offers == before.offers
    new = [found for found in after.findings if found not in before.findings]
    assert [(found.row, found.outcome) for found in new] == [
        ("aws/moon/-/rocket/on_demand", "reject"),
        ("aws/moon/-/rocket/spot", "reject"),
        ("aws/moon/-/sled/on_demand", "reject"),
    ]


def test_the_catalogs_own_facts_judge_its_rows(own_catalog: Path) -> None:
    line = "moon,,{},on_demand,H100,{},96,768,50,{},,,2026-07-20,rumour\n"
    with (own_catalog / "offers" / "aws.csv").open("a") as file:
        file.write(line.format("rocket", 8, 0.9))
        file.write(line.format("sled", 12, 40.0))
    found = {one.row: one.rule for one in SnapshotMarket(root=own_catalog).market(NOW_S).findings if "moon" in one.row}
    assert found == {
        "aws/moon/-/rocket/on_demand": "far_too_cheap",
        "aws/moon/-/sled/on_demand": "impossible_count",
    }
    odd = own_catalog / "odd_counts.yaml"
    odd.write_text(odd.read_text() + "  - {instance_type: sled, count: 12, source: a test}\n")
    assert SnapshotMarket(root=own_catalog).market(NOW_S).offer("aws/moon/-/sled/on_demand") is not None


def test_a_catalog_that_cannot_be_read_is_a_market_error(own_catalog: Path) -> None:
    (own_catalog / "gpus.yaml").write_text("gpus: [")
    with pytest.raises(MarketError, match=r"gpus\.yaml: not valid YAML"):
        SnapshotMarket(root=own_catalog).market(NOW_S)


def test_a_file_without_a_column_is_a_market_error(own_catalog: Path) -> None:
    path = own_catalog / "offers" / "verda.csv"
    path.write_text(path.read_text().replace("usd_per_hour", "price"))
    with pytest.raises(MarketError, match="column usd_per_hour is missing"):
        read_rows(path)


def test_a_short_line_is_a_finding_not_a_crash(own_catalog: Path) -> None:
    with (own_catalog / "offers" / "verda.csv").open("a") as file:
        file.write("FIN-09,,1H100\n")
    market = SnapshotMarket(("verda",), root=own_catalog).market(NOW_S)
    assert any(found.row.startswith("verda/FIN-09/") for found in market.findings)
