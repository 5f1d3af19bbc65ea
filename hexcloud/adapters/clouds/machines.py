"""Machines: what a cloud itself says of the machines that carry our tags, and the last word on ending them.

SkyPilot rents; this is how its memory is checked, and how a machine is ended that it refuses to end or forgot.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol, TypeVar

from hexcloud.domain.errors import ProvisionError

MAX_CALLS = 16
"""Regions that are asked at once."""

EVERYWHERE = "*"
"""In the place of a region: the account as a whole does not answer."""

CLOSED = frozenset({"AuthFailure", "OptInRequired"})
"""Codes with which a region of AWS refuses an account that has not enabled it; the first means bad keys too."""

Said = TypeVar("Said")
Asked = TypeVar("Asked")


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


class Answer(NamedTuple):
    """What an account said, of machines that ended lately too, and where it said nothing."""

    machines: tuple[Machine, ...]
    problems: Mapping[str, ProvisionError]
    """Region, or EVERYWHERE -> why nothing is known of it."""

    def whole(self) -> tuple[Machine, ...]:
        """Return the machines. Raises the first problem: half a list is no list."""
        for problem in self.problems.values():
            raise problem
        return self.machines


class Machines(Protocol):
    """One account on one cloud.

    Every call but `look` raises CredentialsError, RateLimitError or UnknownProvisionError, the latter with the cloud's
    own code: one of CLOSED where a region is not enabled for an account that is known elsewhere.
    """

    def look(self, tags: Mapping[str, str], regions: Iterable[str] = ()) -> Answer:
        """Return the machines that carry all these tags (an empty value stands for any), in these regions,
        and such as ended of which the cloud still tells.

        No region: in every one that the account may use. Never raises for what the cloud does wrong.
        """
        ...

    def listed(self, tags: Mapping[str, str], regions: Iterable[str] = ()) -> tuple[Machine, ...]:
        """Return the machines of `look` that exist, where every region answers; else raises what the first one said."""
        ...

    def known(self, tags: Mapping[str, str], regions: Iterable[str] = ()) -> tuple[Machine, ...]:
        """Return what `listed` returns, and machines that ended of which the cloud still tells (EC2: for an hour)."""
        ...

    def end(self, machines: Iterable[Machine]) -> None:
        """Terminate them; those that ended meanwhile are fine. Raises the first refusal, once all were asked for."""
        ...

    def tag(self, machine: Machine, tags: Mapping[str, str]) -> None:
        """Add tags to a machine, or change them."""
        ...

    def zone_name(self, region: str, zone: str) -> str:
        """Return the account's own name of a zone, as SkyPilot wants it."""
        ...


def each(
    ask: Callable[[str], tuple[Said, ...]], places: Iterable[str]
) -> tuple[tuple[Said, ...], dict[str, ProvisionError]]:
    """Ask several places at once. Return all that they say, in order, and which of them failed why."""

    def one(place: str) -> tuple[Said, ...] | ProvisionError:
        try:
            return ask(place)
        except ProvisionError as error:
            return error

    asked = tuple(places)
    if not asked:
        return (), {}
    with ThreadPoolExecutor(min(MAX_CALLS, len(asked))) as threads:
        answers = dict(zip(asked, threads.map(one, asked), strict=True))
    said = tuple(word for answer in answers.values() if not isinstance(answer, ProvisionError) for word in answer)
    return said, {place: answer for place, answer in answers.items() if isinstance(answer, ProvisionError)}


def ask_all(ask: Callable[[Asked], None], things: Iterable[Asked]) -> None:
    """Ask for one after another, whatever becomes of those before. Raises the first refusal, at the end."""
    refusals: list[ProvisionError] = []
    for thing in things:
        try:
            ask(thing)
        except ProvisionError as error:
            refusals.append(error)
    for refusal in refusals:
        raise refusal


def carries(machine_tags: Mapping[str, str], tags: Mapping[str, str]) -> bool:
    """Has a machine all these tags? An empty value stands for any."""
    return all(key in machine_tags and value in ("", machine_tags[key]) for key, value in tags.items())
