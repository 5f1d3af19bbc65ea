"""WeightWay: gets a version of the weights onto a node's disk, by what costs least and whatever fails on the way.

Deltas from the version that is loaded, or the whole file; from the region's store, the neighbour that has the region's
copy, or the coordinator. What a delta leads to has the digest that the manifest names, or the whole file is taken.
"""

import asyncio
import shutil
from pathlib import Path

import structlog

from hexcloud.domain.delta import WeightsDelta
from hexcloud.domain.errors import EngineError
from hexcloud.domain.messages import WeightsManifest, WeightsWays
from hexcloud.runtime.delta_way import cheapest_way
from hexcloud.runtime.rollout_link import CoordinatorLink, RefusedError, UnreachableError
from hexcloud.runtime.rollout_store import RegionStore
from hexcloud.runtime.rollout_weights import Source, WeightFolder
from hexcloud.runtime.weight_relay import WeightRelay, in_turn, relay_source

log = structlog.get_logger()


class WeightWay:
    """A node's ways to the weights, and its own relay, which offers what it brings."""

    def __init__(
        self,
        link: CoordinatorLink,
        folder: WeightFolder,
        relay: WeightRelay | None = None,
        store: RegionStore | None = None,
    ) -> None:
        self._link = link
        self._folder = folder
        self._relay = relay
        self._store = store

    async def bring(self, wanted: WeightsManifest, have: WeightsManifest | None, is_direct: bool = False) -> Path:
        """Return the directory of a version, whole and verified.

        `is_direct` asks the coordinator for the whole file: another way has failed. Raises what a call raises, and
        EngineError when the bytes that came are not those of the manifest.
        """
        if self._folder.has(wanted):
            return self._folder.directory(wanted)
        ways = await self._link.ways(wanted)
        if self._relay is not None:
            self._relay.token = ways.relay_key
        source = self._link.weights if is_direct else self._source(ways)
        base = have if have is not None and self._folder.has(have) else None
        chain = None if is_direct else cheapest_way(base, wanted, ways.deltas, self._folder.costs)
        if chain and (directory := await self._by_deltas(chain, source)):
            return directory
        if self._relay is not None:
            self._relay.offer(wanted, self._folder.directory(wanted))
        try:
            directory = await self._folder.fetch(wanted, source)
        except EngineError as error:
            await self._blame(wanted, error)
            raise
        log.info("weights_fetched", version=wanted.version, bytes=wanted.size)
        return directory

    def _source(self, ways: WeightsWays) -> Source:
        sources: list[Source] = [self._link.weights]
        if ways.relay is not None:
            sources.insert(0, relay_source(ways.relay.address, ways.relay_key, ways.relay.certificate))
        if ways.has_store and self._store is not None:
            sources.insert(0, self._store.source)
        return in_turn(tuple(sources), self._folder.link_bytes_per_s, self._blame)

    async def _blame(self, wanted: WeightsManifest | WeightsDelta, error: Exception) -> None:
        if self._store is not None:
            await self._store.blame(wanted, error)

    async def _by_deltas(self, chain: tuple[WeightsDelta, ...], source: Source) -> Path | None:
        """Return the directory to which the chain leads; None when a step of it is not what it should be."""
        directory = None
        try:
            for delta in chain:
                if self._relay is not None:
                    self._relay.offer_delta(delta, self._folder.delta_path(delta))
                path = await self._folder.fetch_delta(delta, source)
                made, directory = directory, await self._folder.apply(delta, path)
                if made is not None:  # a step on the way: a long chain would fill the disk
                    await asyncio.to_thread(shutil.rmtree, made)
        except UnreachableError:
            raise
        except (EngineError, RefusedError) as error:
            await self._blame(delta, error)
            log.warning("deltas_given_up", version=chain[-1].result.version, reason=str(error))
            return None
        sent = sum(delta.size for delta in chain)
        log.info("weights_patched", version=chain[-1].result.version, deltas=len(chain), bytes=sent)
        return directory
