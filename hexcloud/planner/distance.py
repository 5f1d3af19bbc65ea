"""How far two machines are apart, and what link to expect between them before anything is measured."""

import re

from hexcloud.domain.market import LinkScope, LinkSpec, Network
from hexcloud.domain.offer import Offer

_CONTINENTS = {
    "north-america": "us usa ca can canada mx mexico northamerica",
    "south-america": "sa br southamerica brazil",
    "europe": (
        "eu eur europe uk gb de fr fi fin se no nl is ice isl ro cz bg pl es it ie ch at dk be pt ee lt lv "
        "iceland finland norway sweden germany france"
    ),
    "asia": "ap asia jp in sg kr tw hk cn id my th japan india singapore korea",
    "oceania": "au aus nz oc australia",
    "middle-east": "me il ae qa israel",
    "africa": "af africa za",
}
"""Leading or any later word of a region's name, as AWS, GCP, Lambda, Nebius, Verda and RunPod spell them."""

_CONTINENT_OF_WORD = {word: name for name, words in _CONTINENTS.items() for word in words.split()}


def continent(region: str) -> str | None:
    """Return the continent a region's name speaks of (`us-east-1`, `europe-west4`, `FIN-01`), or None if unknown."""
    words = re.findall(r"[a-z]+", region.lower())
    return next((_CONTINENT_OF_WORD[word] for word in words if word in _CONTINENT_OF_WORD), None)


def scope_between(one: Offer, other: Offer) -> LinkScope:
    """Return how far apart machines of two offers are. Two clouds never share more than a continent."""
    if (one.cloud, one.region) == (other.cloud, other.region):
        return LinkScope.ZONE if one.zone == other.zone else LinkScope.REGION
    here = continent(one.region)
    return LinkScope.CONTINENT if here is not None and here == continent(other.region) else LinkScope.WORLD


def forecast_gb_per_s(one: Offer, other: Offer, network: Network) -> float:
    """Return the expected one-way bandwidth, 1e9 bytes/s: what the scope and both machines allow."""
    own = min(one.network_gb_per_s, other.network_gb_per_s)
    spec = link_spec(scope_between(one, other), network)
    return own if spec is None else min(own, spec.gb_per_s)


def link_spec(scope: LinkScope, network: Network) -> LinkSpec | None:
    """Return what the catalog says of a scope, or None when it says nothing."""
    return next((link for link in network.links if link.scope is scope), None)
