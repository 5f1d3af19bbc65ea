"""Where a node listens, and under which address others reach it.

A node on this machine has one address for all. A rented one listens on all its addresses. The head is dialled by
everybody, so it is reached by what the user says (HEXCLOUD_NODE_ADDRESS), else by its public address, as the cloud's
metadata tell, else by the one that SkyPilot knows (SKYPILOT_NODE_IPS, by rank): machines without a public address
share a network. Whoever is dialled by neighbours only, for probes, is reached by SkyPilot's: no port is open to others.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from hexcloud.adapters.clouds.metadata import open_metadata
from hexcloud.domain.errors import ProvisionError
from hexcloud.node.identity import HOST, node_rank

ADDRESS = "HEXCLOUD_NODE_ADDRESS"
SKY_IPS = "SKYPILOT_NODE_IPS"
EVERYWHERE = "0.0.0.0"
HERE = "127.0.0.1"

log = structlog.get_logger()


@dataclass(frozen=True)
class Place:
    """A node's place in the network."""

    host: str
    """What it listens on."""
    address: str
    """By which everybody reaches it, if anybody can."""
    near: str
    """By which machines of its own network reach it."""


def near_address(rank: int, environment: Mapping[str, str]) -> str:
    """Return the address of a machine of this one's gang, by which the others of it reach it."""
    addresses = environment.get(SKY_IPS, "").split()
    return addresses[rank] if rank < len(addresses) else HERE


async def find_place(cloud: str, environment: Mapping[str, str]) -> Place:
    """Return a node's place; `cloud` is whose metadata there are, if any."""
    addresses = environment.get(SKY_IPS, "").split()
    host = environment.get(HOST) or (EVERYWHERE if addresses else HERE)
    if host not in {EVERYWHERE, "::"}:
        return Place(host, environment.get(ADDRESS) or host, host)
    known = near_address(node_rank(environment), environment)
    return Place(host, environment.get(ADDRESS) or await _public_address(cloud, environment) or known, known)


async def _public_address(cloud: str, environment: Mapping[str, str]) -> str:
    if not cloud:
        return ""
    metadata = open_metadata(cloud, environment)
    try:
        return await metadata.public_address()
    except ProvisionError as error:
        log.warning("no_public_address", reason=str(error))
        return ""
    finally:
        await metadata.close()
