"""The whole market: what hexcloud believes of SkyPilot's catalog rows where they are at hand, else a made-up market.

The rows are read from `$HEXCLOUD_SHARED_DATA/skypilot-catalog` (default: `shared/data` beside the repository) as
`hexcloud catalog refresh --from` reads them: judged by the gate, and laid over the bundled catalog. What is rejected or
quarantined is no offer. What is believed although its capacity is unproven is one, but its stock is 0: no plan of a
benchmark sets `try_unproven`. Where the market comes from tells how many there are of each.
"""

import functools
import os
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from hexcloud.adapters.files import load_calibration, load_gpus, load_network, load_odd_counts, load_rates, load_usual
from hexcloud.adapters.markets.skypilot import SkyPilotMarket
from hexcloud.adapters.markets.snapshot import SnapshotMarket
from hexcloud.adapters.markets.stored import StoredMarket
from hexcloud.adapters.store.prices import SqlitePrices
from hexcloud.controller.refresh import Facts, refresh
from hexcloud.domain.market import EgressPrice, LinkScope, Market, Outcome
from hexcloud.domain.offer import Offer, Tenure, offer_id

ROOT = Path(__file__).parents[2]
ROWS_AS_OF = datetime(2026, 7, 1, tzinfo=UTC)
"""When the rows of all files are said to be true. Where the bundle has a fresher price of an offer, that one stands."""
AS_OF = datetime(2026, 8, 1, tzinfo=UTC)
# What clouds outside the bundled catalog bill for traffic; general knowledge, enough for egress to count.
_EGRESS_USD_PER_GB = {
    "azure": (0.0, 0.01, 0.02, 0.087),
    "oci": (0.0, 0.0, 0.0085, 0.0085),
    "ibm": (0.0, 0.0, 0.02, 0.09),
}


def shared_data() -> Path:
    """Return the folder of public price data, which need not exist."""
    return Path(os.environ.get("HEXCLOUD_SHARED_DATA", ROOT.parent / "shared" / "data"))


def whole_market(*, most: int | None = None) -> tuple[Market, str]:
    """Return a market of thousands of offers and where it comes from; `most` keeps an even sample of so many."""
    folder = shared_data() / "skypilot-catalog"
    market, source = _believed(folder) if folder.is_dir() else _imagined()
    offers = market.offers if most is None else market.offers[:: max(1, len(market.offers) // most)]
    egress = [
        EgressPrice(cloud=cloud, scope=scope, usd_per_gb=usd, source="price list (general knowledge)")
        for cloud, prices in _EGRESS_USD_PER_GB.items()
        for scope, usd in zip(LinkScope, prices, strict=True)
    ]
    network = market.network.model_copy(update={"egress": (*market.network.egress, *egress)})
    return market.model_copy(update={"offers": offers, "network": network}), f"{source}; {proven_in_words(offers)}"


def proven_in_words(offers: tuple[Offer, ...]) -> str:
    """Say how many of these offers a plan may use: an unproven one has stock 0."""
    proven = sum(offer.proven for offer in offers)
    return f"{proven} offers of proven capacity, {len(offers) - proven} unproven (stock 0)"


@functools.cache
def _believed(folder: Path) -> tuple[Market, str]:
    """Refresh an empty memory of prices from the folder, and return what is believed then."""
    bundle, said = SnapshotMarket(), Counter[Outcome]()
    facts = Facts(
        usual_usd_per_gpu_hour=load_usual(),
        usd_per_unit=load_rates(),
        odd_counts=load_odd_counts(),
        offers=bundle.market(AS_OF.timestamp()).offers,
    )
    with TemporaryDirectory() as home:
        prices = SqlitePrices(Path(home) / "prices.db")
        for report in refresh(SkyPilotMarket(folder, ROWS_AS_OF), prices, facts, lambda: AS_OF, every_region=True):
            if report.problem:
                raise SystemExit(f"{folder}: {report.cloud}/{report.region}: {report.problem}")
            said.update(report.outcomes)
        market = StoredMarket(bundle, prices).market(AS_OF.timestamp())
    counts = ", ".join(f"{said[outcome]} {outcome.value}" for outcome in Outcome)
    return market, f"SkyPilot catalog rows as refresh believes them ({counts}) over the bundle"


def _imagined() -> tuple[Market, str]:
    offers = tuple(sorted(_made_up(), key=lambda offer: offer.id))
    market = Market(
        as_of=AS_OF, offers=offers, gpus=load_gpus(), network=load_network(), calibration=load_calibration()
    )
    return market, "made-up market of the same shape"


_KINDS = (
    ("H100", 8, 32.0, 192, 400.0),
    ("H100", 1, 3.5, 24, 12.5),
    ("H200", 8, 38.0, 192, 400.0),
    ("A100-80GB", 8, 20.0, 96, 50.0),
    ("A100-80GB", 1, 2.2, 12, 3.0),
    ("A100-40GB", 8, 16.0, 96, 50.0),
    ("L40S", 8, 12.0, 192, 12.5),
    ("L40S", 1, 1.5, 16, 2.5),
    ("A10G", 4, 5.7, 48, 5.0),
    ("A10G", 1, 1.0, 8, 1.25),
    ("L4", 8, 8.0, 96, 12.5),
    ("L4", 1, 0.8, 8, 1.25),
    ("T4", 4, 3.9, 48, 6.25),
    ("V100", 8, 24.0, 64, 3.1),
)
"""GPU, how many, USD/h, vCPUs and network GB/s of usual machines."""
_PLACES = tuple(
    (cloud, f"{word}-{number}")
    for cloud in ("aws", "gcp", "azure", "lambda", "runpod")
    for word in ("us-east", "us-west", "eu-north", "eu-west", "ap-south", "ap-east")
    for number in (1, 2, 3)
)


def _made_up() -> Iterator[Offer]:
    """Ninety regions with up to three zones; prices differ by place, spot is a quarter to three quarters of them."""
    dice = random.Random(0)
    for cloud, region in _PLACES:
        level = dice.uniform(0.8, 1.4)
        zones = ("a", "b", "c") if cloud in ("aws", "gcp", "azure") else (None,)
        for zone in zones:
            for gpu, count, usd, vcpus, network in _KINDS:
                for tenure in Tenure if dice.random() < 0.97 else (Tenure.ON_DEMAND,):
                    share = dice.uniform(0.25, 0.75) if tenure is Tenure.SPOT else 1.0
                    instance_type = f"{count}x-{gpu.lower()}"
                    yield Offer(
                        id=offer_id(cloud, region, zone, instance_type, tenure),
                        cloud=cloud,
                        region=region,
                        zone=zone,
                        instance_type=instance_type,
                        tenure=tenure,
                        gpu=gpu,
                        gpu_count=count,
                        vcpus=vcpus,
                        memory_gib=vcpus * 8,
                        network_gb_per_s=network,
                        usd_per_hour=round(usd * level * share, 4),
                        as_of=AS_OF,
                        source="made up",
                    )
