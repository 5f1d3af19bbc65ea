"""Machines: what a cloud itself says of the machines that carry our tags, and the last word on ending them.

SkyPilot rents; this is how its memory is checked, and how a machine is ended that it refuses to end or forgot.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol, TypeVar

MAX_CALLS = 16
"""Regions that are asked at once."""

Asked = TypeVar("Asked")
Said = TypeVar("Said")


class Machine(NamedTuple):
    """One machine that exists, whatever its state: it bills, or at least its disk does."""

    cloud: str
    region: str
    zone: str
    id: str
    """As the cloud names it, within the region (AWS) or the zone (GCP)."""
    instance_type: str
    private_ip: str
    tags: Mapping[str, str]
    began_s: float | None = None
    """Since when it bills, seconds since the epoch; None: the cloud does not say."""
    ended_s: float | None = None
    """Since when it bills no more; None: it does, or the cloud does not say."""
    exists: bool = True


class Machines(Protocol):
    """One account on one cloud.

    Every call raises CredentialsError, RateLimitError or UnknownProvisionError, the latter with the cloud's own code.
    """

    def listed(self, tags: Mapping[str, str], regions: Iterable[str] = ()) -> tuple[Machine, ...]:
        """Return the machines that carry all these tags (an empty value stands for any), in these regions.

        No region: in every one that the account may use. One that does not answer then fails the call, too: half a list
        is no list.
        """
        ...

    def known(self, tags: Mapping[str, str], regions: Iterable[str] = ()) -> tuple[Machine, ...]:
        """Return what `listed` returns, and machines that ended of which the cloud still tells (EC2: for an hour)."""
        ...

    def end(self, machines: Iterable[Machine]) -> None:
        """Terminate them; those that ended meanwhile are fine."""
        ...

    def tag(self, machine: Machine, tags: Mapping[str, str]) -> None:
        """Add tags to a machine, or change them."""
        ...

    def zone_name(self, region: str, zone: str) -> str:
        """Return the account's own name of a zone, as SkyPilot wants it."""
        ...


def each(ask: Callable[[Asked], tuple[Said, ...]], asked: Iterable[Asked]) -> tuple[Said, ...]:
    """Ask several places at once and return all they say, in order. Raises what the first of them raises."""
    places = tuple(asked)
    if not places:
        return ()
    with ThreadPoolExecutor(min(MAX_CALLS, len(places))) as threads:
        return tuple(said for answer in threads.map(ask, places) for said in answer)


def carries(machine_tags: Mapping[str, str], tags: Mapping[str, str]) -> bool:
    """Has a machine all these tags? An empty value stands for any."""
    return all(key in machine_tags and value in ("", machine_tags[key]) for key, value in tags.items())
