"""Which sources of prices a question means: the clouds' own APIs, or a folder of SkyPilot's catalog files."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from hexcloud.adapters.files import suggest
from hexcloud.domain.errors import ConfigError
from hexcloud.ports import PastSource, PriceSource

LIVE_CLOUDS = ("aws", "gcp")
"""Clouds whose own API is read."""


@dataclass(frozen=True)
class PriceQuestion:
    """Whom to ask for prices, and about what."""

    clouds: tuple[str, ...] = ()
    """Empty: every live cloud, or every cloud in the folder."""
    regions: tuple[str, ...] = ()
    """Empty: all. `*` stands for anything."""
    folder: Path | None = None
    """SkyPilot's catalog files, instead of the clouds."""
    as_of: datetime | None = None
    """When the files' prices were true; None: their time of change."""
    past_days: float | None = None
    """How far back to ask for earlier prices too; None: not at all."""


def price_sources(question: PriceQuestion) -> tuple[PriceSource, ...]:
    """Return the sources to ask, one after the other. Raises ConfigError for what nobody can answer."""
    if question.folder is not None:
        if question.past_days is not None:
            shown = "a recording is shown by `hexcloud catalog history OFFER --from PATH`"
            raise ConfigError(f"--history: SkyPilot's catalog files hold no past prices; leave out --from ({shown})")
        from hexcloud.adapters.markets.skypilot import SkyPilotMarket

        return (SkyPilotMarket(question.folder, question.as_of, question.clouds, question.regions),)
    if question.as_of is not None:
        raise ConfigError("--as-of dates the prices of files; clouds date their own: leave it out, or add --from DIR")
    for cloud in question.clouds:
        if cloud not in LIVE_CLOUDS:
            other = "other clouds come from SkyPilot's catalog files: --from ~/.sky/catalogs/v8"
            raise ConfigError(f"cloud {cloud!r} has no live source{suggest(cloud, LIVE_CLOUDS)}; {other}")
    sources = {cloud: _live(cloud, question.regions) for cloud in question.clouds or LIVE_CLOUDS}
    for cloud, source in sources.items():
        _check_past(question, cloud, source)
    return tuple(sources.values())


def _check_past(question: PriceQuestion, cloud: str, source: PriceSource) -> None:
    """Refuse days that a source does not keep, and any of a cloud that was named and keeps none."""
    days = question.past_days
    if days is None:
        return
    if isinstance(source, PastSource):
        if days > source.kept_days:
            raise ConfigError(f"--history {days:g}d: {cloud} keeps {source.kept_days:g} days; ask for no more")
    elif cloud in question.clouds:
        raise ConfigError(f"--history: {cloud} keeps no past prices; leave out --cloud {cloud} or --history")


def _live(cloud: str, regions: tuple[str, ...]) -> PriceSource:
    try:
        if cloud == "aws":
            from hexcloud.adapters.markets.aws import AwsMarket

            return AwsMarket(regions, now)
        from hexcloud.adapters.markets.gcp import GcpMarket

        return GcpMarket(regions, now)
    except ImportError as error:
        raise ConfigError(f"{cloud} needs a library that is not installed: pip install 'hexcloud[{cloud}]'") from error


def now() -> datetime:
    """Return this moment in UTC: prices of clouds are true on the real clock, whatever clock a run is on."""
    return datetime.fromtimestamp(time.time(), UTC)
