"""Stores of regions for weights: are they what a run can use? Better known before anything is rented."""

import secrets

from hexcloud.domain.command import run_store
from hexcloud.domain.errors import ConfigError, StoreError
from hexcloud.domain.fleet import RunId
from hexcloud.domain.market import Market
from hexcloud.domain.run import RunSpec

_FOLDERS = ("file://", "local://")
"""Of one computer: machines of a region have none in common with the head."""


def require_weights_stores(spec: RunSpec, market: Market) -> None:
    """Raise ConfigError for a region that the market does not know, or a URL that cannot be a store there."""
    from hexcloud.adapters.files import hint
    from hexcloud.adapters.weight_store import open_weight_store

    known = {f"{offer.cloud}/{offer.region}" for offer in market.offers}
    for region, url in spec.weights_stores.items():
        if region not in known:
            raise ConfigError(
                f"weights_stores: {region} is no region in which this run can rent{hint(region, known)}; "
                "`hexcloud catalog show` lists CLOUD and REGION of all offers"
            )
        if spec.is_real and url.lower().startswith(_FOLDERS):
            raise ConfigError(f"weights_stores: {region}: {url} is a folder of one computer; name a bucket in {region}")
        try:
            open_weight_store(url, region)
        except ConfigError as error:
            raise ConfigError(f"weights_stores: {region}: {str(error).removeprefix('store: ')}") from None


def prove_weights_stores(spec: RunSpec) -> None:
    """Write, read, list and remove an object in each store, as the head will. Raises ConfigError."""
    from hexcloud.adapters.weight_store import open_weight_store

    for region, url in spec.weights_stores.items():
        store = open_weight_store(run_store(url, RunId("preflight")), region)
        try:
            store.prove(f"weights/{secrets.token_hex(8)}")
        except StoreError as error:
            raise ConfigError(
                f"weights_stores: {region}: nothing was rented, since the trainer's head could not write there: {error}"
            ) from error
