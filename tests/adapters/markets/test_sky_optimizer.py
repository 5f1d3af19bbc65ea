from datetime import UTC, datetime
from pathlib import Path

import pytest

from hexcloud.adapters.markets import sky_optimizer
from hexcloud.adapters.markets.sky_optimizer import CATALOG, Ask, is_installed, picks, picks_of
from hexcloud.domain.errors import MarketError
from hexcloud.domain.offer import Offer, Tenure, offer_id

needs_sky = pytest.mark.skipif(not is_installed(), reason="SkyPilot is not installed (pip install hexcloud[cloud])")


def offer(place: str, instance_type: str, usd_per_hour: float, tenure: Tenure = Tenure.ON_DEMAND) -> Offer:
    cloud, region, zone = place.split("/")
    return Offer(
        id=offer_id(cloud, region, zone, instance_type, tenure),
        cloud=cloud,
        region=region,
        zone=zone,
        instance_type=instance_type,
        tenure=tenure,
        gpu="H100" if instance_type.startswith("h") else "L4",
        gpu_count=int(instance_type[1:]),
        vcpus=16,
        memory_gib=64,
        network_gb_per_s=1,
        usd_per_hour=usd_per_hour,
        as_of=datetime(2026, 7, 1, tzinfo=UTC),
        source="test",
    )


OFFERS = (
    offer("aws/one/a", "h8", 40.0),
    offer("aws/one/b", "h8", 40.0),
    offer("gcp/two/a", "h8", 30.0),
    offer("aws/one/a", "l1", 0.4, Tenure.SPOT),
    offer("aws/one/b", "l1", 0.2, Tenure.SPOT),
    offer("gcp/two/a", "l1", 0.7),
)


@needs_sky
def test_sky_takes_the_cheapest_place_for_the_same_machines() -> None:
    asks = (Ask("H100", 8, 2, Tenure.ON_DEMAND), Ask("L4", 1, 3, Tenure.SPOT))
    assert picks(asks, OFFERS) == {"gcp/two/a/h8/on_demand", "aws/one/b/l1/spot"}


@needs_sky
def test_several_buyers_are_answered_apart() -> None:
    one, other = (Ask("H100", 8, 2, Tenure.ON_DEMAND),), (Ask("L4", 1, 3, Tenure.SPOT),)
    first, second = picks(one, OFFERS), picks(other, OFFERS)
    assert first != second
    assert picks_of((one, other, (), one), OFFERS) == (first, second, frozenset(), first)


@needs_sky
def test_on_demand_all_zones_of_the_region_it_takes_are_meant() -> None:
    offers = tuple(one for one in OFFERS if one.cloud == "aws")
    assert picks((Ask("H100", 8, 1, Tenure.ON_DEMAND),), offers) == {"aws/one/a/h8/on_demand", "aws/one/b/h8/on_demand"}


@needs_sky
def test_machines_of_one_name_and_of_several_sizes_are_told_apart() -> None:
    large = offer("aws/two/a", "l1", 0.3, Tenure.SPOT).model_copy(update={"memory_gib": 128.0})
    assert picks((Ask("L4", 1, 1, Tenure.SPOT),), (*OFFERS, large)) == {"aws/one/b/l1/spot"}
    cheap = large.model_copy(update={"usd_per_hour": 0.1})
    assert picks((Ask("L4", 1, 1, Tenure.SPOT),), (*OFFERS, cheap)) == {cheap.id}


def test_what_sky_cannot_answer_is_a_market_error() -> None:
    """Without SkyPilot the process fails at its import; with it, as nobody lists such a machine."""
    with pytest.raises(MarketError, match="SkyPilot's optimizer failed: "):
        picks((Ask("H200", 8, 1, Tenure.SPOT),), OFFERS)


def test_the_catalog_it_reads_has_a_row_for_each_zone_with_both_prices(tmp_path: Path) -> None:
    sky_optimizer._write_catalog(tmp_path / CATALOG, OFFERS)
    lines = (tmp_path / CATALOG / "aws" / "vms.csv").read_text().splitlines()
    assert len(lines) == 1 + 6
    assert "aws:l1:1xL4:16:64,L4,1,16.0,64.0,,,0.2,aws:one,aws:one:b,x86_64" in lines
    assert "gcp:l1:1xL4:16:64,L4,1,16.0,64.0,,0.7,,gcp:two,gcp:two:a,x86_64" in lines
    assert "H100,['AWS']" in (tmp_path / CATALOG / "common" / "accelerators.csv").read_text()
