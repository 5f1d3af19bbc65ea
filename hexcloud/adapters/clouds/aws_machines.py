"""AwsMachines: our machines on EC2 by their tags, over regions, and their end. Implements `machines.Machines`."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

from hexcloud.adapters.clouds import aws_answers as answers
from hexcloud.adapters.clouds.aws import ENDED, AwsAccount, AwsRegion, Patience
from hexcloud.adapters.clouds.aws_errors import AwsError, Why
from hexcloud.adapters.clouds.machines import CLOSED, EVERYWHERE, Answer, Machine, ask_all, each
from hexcloud.domain.errors import CredentialsError, ProvisionError, RateLimitError, UnknownProvisionError

AWS = "aws"
GONE = "InvalidInstanceID.NotFound"
_MOMENT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?: (?:UTC|GMT))?\)")
_KINDS: dict[Why, type[ProvisionError]] = {Why.CREDENTIALS: CredentialsError, Why.THROTTLED: RateLimitError}


class AwsMachines:
    """The machines of one account. May be used from several threads."""

    def __init__(self, patience: Patience | None = None) -> None:
        self._account = AwsAccount(patience or Patience(read_s=10.0, attempts=3, region_s=30.0))
        self._zones: dict[str, dict[str, str]] = {}

    def listed(self, tags: Mapping[str, str], regions: Iterable[str] = ()) -> tuple[Machine, ...]:
        """See `Machines.listed`."""
        return tuple(machine for machine in self.known(tags, regions) if machine.exists)

    def known(self, tags: Mapping[str, str], regions: Iterable[str] = ()) -> tuple[Machine, ...]:
        """See `Machines.known`."""
        return self.look(tags, regions).whole()

    def look(self, tags: Mapping[str, str], regions: Iterable[str] = ()) -> Answer:
        """See `Machines.look`. Without the list of regions nothing is known of any."""
        try:
            places = tuple(regions) or self._regions()
        except ProvisionError as error:
            return Answer((), {EVERYWHERE: error})
        return Answer(*each(lambda region: self._in_region(region, tags), places))

    def end(self, machines: Iterable[Machine]) -> None:
        """See `Machines.end`. One call a region, and one a machine where AWS refuses all for the sake of one."""
        places: dict[str, list[str]] = {}
        for machine in machines:
            places.setdefault(machine.region, []).append(machine.id)
        _, problems = each(lambda region: self._end_in(region, places[region]), sorted(places))
        for problem in problems.values():
            raise problem

    def tag(self, machine: Machine, tags: Mapping[str, str]) -> None:
        """See `Machines.tag`."""
        with self._at(machine.region) as place:
            place.tag([machine.id], tags)

    def zone_name(self, region: str, zone: str) -> str:
        """Return the account's name of a zone id; a name stays as it is. Raises UnknownProvisionError for neither."""
        with self._at(region) as place:
            if region not in self._zones:
                self._zones[region] = answers.zones(place.zones())
        names = {id_: name for name, id_ in self._zones[region].items()}
        if zone in names.values():
            return zone
        if zone not in names:
            raise UnknownProvisionError(f"AWS {region}: the account has no zone {zone}", code="zone")
        return names[zone]

    def close(self) -> None:
        """Close all connections."""
        self._account.close()

    def _regions(self) -> tuple[str, ...]:
        with _typed():
            home = AwsRegion(self._account, self._account.home_region())
            return tuple(sorted(answers.text(region, "RegionName") for region in home.regions()))

    def _in_region(self, region: str, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        with self._at(region) as place:
            reservations = place.tagged(tags)
            found = (instance for reservation in reservations for instance in answers.items(reservation, "Instances"))
            return tuple(machine_of(region, instance) for instance in found)

    def _end_in(self, region: str, ids: list[str]) -> tuple[()]:
        """End a region's machines: AWS refuses all for the sake of one that is protected, denied or not known."""
        try:
            self._end(region, ids)
        except UnknownProvisionError as error:
            is_silent = isinstance(error.__cause__, AwsError) and error.__cause__.why is Why.SILENT
            if len(ids) == 1 or is_silent or error.code in CLOSED:  # no other answer to each; silences take hours
                raise
            ask_all(lambda one: self._end(region, [one]), ids)
        return ()

    def _end(self, region: str, ids: list[str]) -> None:
        with self._at(region) as place:
            try:
                place.terminate(ids)
            except AwsError as error:
                if error.code != GONE or len(ids) > 1:
                    raise

    @contextmanager
    def _at(self, region: str) -> Iterator[AwsRegion]:
        """Give a region. One that is not enabled for the account answers as to a stranger, and others know us."""
        with _typed():
            try:
                yield AwsRegion(self._account, region)
            except AwsError as error:
                if error.code not in CLOSED or not self._is_known():
                    raise
                said = f"{error}; the region is not enabled for the account"
                raise UnknownProvisionError(said, code=error.code) from error

    def _is_known(self) -> bool:
        """Does AWS accept the credentials at all?"""
        try:
            AwsRegion(self._account, self._account.home_region()).identity()
        except AwsError:
            return False
        return True


def machine_of(region: str, instance: object) -> Machine:
    """Read an instance, as DescribeInstances tells of it."""
    tags = {answers.text(tag, "Key"): answers.text(tag, "Value") for tag in answers.items(instance, "Tags")}
    exists = answers.text(instance, "State", "Name") not in ENDED
    return Machine(
        cloud=AWS,
        region=region,
        zone=answers.text(instance, "Placement", "AvailabilityZone"),
        id=answers.text(instance, "InstanceId"),
        instance_type=answers.text(instance, "InstanceType"),
        private_ip=answers.text(instance, "PrivateIpAddress"),
        tags=tags,
        began_s=answers.moment_s(instance, "LaunchTime"),
        ended_s=None if exists else _ended_s(instance),
        exists=exists,
    )


def _ended_s(instance: object) -> float | None:
    """Return when a machine's end began, as in `User initiated (2026-11-29 23:39:14 UTC)`."""
    found = _MOMENT.search(answers.text(instance, "StateTransitionReason"))
    if found is None:
        return None
    try:
        return datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


@contextmanager
def _typed() -> Iterator[None]:
    try:
        yield
    except AwsError as error:
        raise _KINDS.get(error.why, UnknownProvisionError)(str(error), code=error.code) from error
