"""AWS clients: one call, one method, read to the last page; every failure is an AwsError, one line for people.

Keys, profile and endpoints come from the SDK's own variables and files (AWS_PROFILE, AWS_ENDPOINT_URL, ...).
Time is bounded: each try by its own limit, tries by their number, a region's pages together by a deadline.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock
from typing import Any, NamedTuple

import boto3
from botocore.config import Config

from hexcloud.adapters.clouds.aws_errors import AwsError, Why, said_plainly

Answer = dict[str, Any]

ACCELERATED = ("dl*", "g*", "inf*", "p*", "trn*")
"""Instance families that carry accelerators; asking for these alone reads 1 page where all types are 14."""
LINUX = "Linux/UNIX"
OWN_PARTITION = ("cn-", "us-gov-", "us-iso", "eu-iso", "eusc-")
"""Regions with accounts of their own."""
EVERYWHERE = ("m*", "t*")
"""Families that every region has."""
ENDED = ("shutting-down", "terminated")
"""States of machines that bill no more; EC2 tells of them for about an hour."""
"""States of a machine that is there: a stopped one still bills its disk."""
MAX_PAGES = 2000
"""Of 1,000 spot prices each; an answer that goes on for longer is broken."""
MAX_PAUSE_S = 20.0
"""The SDK's own longest pause between two tries (botocore, retries/standard.py)."""


@dataclass(frozen=True)
class Patience:
    """How long to wait for AWS. A region is answered, or given up, within `region_s + call_s`."""

    connect_s: float = 3.0
    read_s: float = 15.0
    attempts: int = 4
    """Of one call, with the SDK's adaptive retries: throttling slows the next calls down instead of failing them."""
    region_s: float = 120.0
    """No further call is started for a region after this long."""

    @property
    def call_s(self) -> float:
        """The longest that one call can take: every try runs into its limit, every pause is the longest."""
        return self.attempts * (self.connect_s + self.read_s) + (self.attempts - 1) * MAX_PAUSE_S


class Call(NamedTuple):
    """One operation and where its list is."""

    service: str
    operation: str
    """Method of the SDK's client."""
    lists: str = ""
    """Key of the answer's list; empty: the answer itself."""
    action: str = ""
    """IAM name of the permission."""
    region: str = ""
    """Where it is answered, if not in the region asked about."""

    @property
    def name(self) -> str:
        """The operation as the API reference spells it."""
        return self.action.partition(":")[2] or self.operation


_IDENTITY = Call("sts", "get_caller_identity", action="sts:GetCallerIdentity")
_REGIONS = Call("ec2", "describe_regions", "Regions", "ec2:DescribeRegions")
_ZONES = Call("ec2", "describe_availability_zones", "AvailabilityZones", "ec2:DescribeAvailabilityZones")
_TYPES = Call("ec2", "describe_instance_types", "InstanceTypes", "ec2:DescribeInstanceTypes")
_OFFERINGS = Call(
    "ec2", "describe_instance_type_offerings", "InstanceTypeOfferings", "ec2:DescribeInstanceTypeOfferings"
)
_SPOT = Call("ec2", "describe_spot_price_history", "SpotPriceHistory", "ec2:DescribeSpotPriceHistory")
_INSTANCES = Call("ec2", "describe_instances", "Reservations", "ec2:DescribeInstances")
_TERMINATE = Call("ec2", "terminate_instances", action="ec2:TerminateInstances")
_TAG = Call("ec2", "create_tags", action="ec2:CreateTags")
_SCORES = Call("ec2", "get_spot_placement_scores", "SpotPlacementScores", "ec2:GetSpotPlacementScores")
_QUOTAS = Call("service-quotas", "list_service_quotas", "Quotas", "servicequotas:ListServiceQuotas")
_PRODUCTS = Call("pricing", "get_products", "PriceList", "pricing:GetProducts")


@dataclass
class AwsAccount:
    """The clients of one account, made once each. May be used from several threads."""

    patience: Patience = field(default_factory=Patience)
    _clients: dict[tuple[str, str], Any] = field(default_factory=dict, init=False)
    _session: Any = field(default=None, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def client(self, service: str, region: str) -> Any:
        """Return the SDK's client. Raises what the SDK raises, such as ProfileNotFound: ask inside `said_plainly`."""
        with self._lock:
            found = self._clients.get((service, region))
            if found is None:
                found = self._clients[service, region] = self._open().client(service, region, config=self._config())
            return found

    def home_region(self, asked: tuple[str, ...] = ()) -> str:
        """Return the region for what concerns the whole account: the user's own, else us-east-1 or its counterpart.

        `asked` are the regions in question: China's and the government's know nothing of other accounts.
        """
        with said_plainly("settings", ""), self._lock:
            if asked and asked[0].startswith(OWN_PARTITION) and "*" not in asked[0]:
                return asked[0]
            return self._open().region_name or "us-east-1"

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()

    def _open(self) -> Any:
        if self._session is None:
            self._session = boto3.Session()
        return self._session

    def _config(self) -> Config:
        return Config(
            connect_timeout=self.patience.connect_s,
            read_timeout=self.patience.read_s,
            retries={"mode": "adaptive", "total_max_attempts": self.patience.attempts},
            user_agent_extra="hexcloud",
        )


class AwsRegion:
    """What one region says. Every method reads to the last page and raises AwsError."""

    def __init__(self, account: AwsAccount, region: str) -> None:
        """Start the region's time."""
        self.name = region
        self._account = account
        self._ends_at_s = time.monotonic() + account.patience.region_s

    @property
    def is_cut_off(self) -> bool:
        """Has the region accounts of its own, and the price list to them is none of theirs? China has one itself."""
        return self.name.startswith(OWN_PARTITION) and not self.name.startswith("cn-")

    def identity(self) -> Answer:
        """Return who we are: Account, Arn."""
        return self._once(_IDENTITY, {})

    def regions(self) -> list[Answer]:
        """Return the regions that the account may use."""
        enabled = {"Name": "opt-in-status", "Values": ["opt-in-not-required", "opted-in"]}
        return self._all(_REGIONS, {"Filters": [enabled]})

    def zones(self) -> list[Answer]:
        """Return the zones, with the account's names and the ids that all accounts share."""
        return self._all(_ZONES, {})

    def instance_types(self) -> list[Answer]:
        """Return the facts of the machines with accelerators."""
        return self._all(_TYPES, {"Filters": [{"Name": "instance-type", "Values": list(ACCELERATED)}]})

    def offerings(self, types: tuple[str, ...] = ACCELERATED) -> list[Answer]:
        """Return which zone (by id) has which of these machines; `*` stands for anything."""
        types_asked = {"Name": "instance-type", "Values": list(types)}
        return self._all(_OFFERINGS, {"LocationType": "availability-zone-id", "Filters": [types_asked]})

    def spot_prices(self, instance_types: tuple[str, ...], since: datetime) -> list[Answer]:
        """Return Linux spot prices, each with its zone and time; the first of each pool was in force at `since`.

        `since` now: the prices in force. AWS keeps 90 days.
        """
        asked = {"InstanceTypes": list(instance_types), "ProductDescriptions": [LINUX]}
        return self._all(_SPOT, {**asked, "StartTime": since, "MaxResults": 1000})

    def instances(self) -> list[Answer]:
        """Return the reservations of all our machines that start or run: they draw on the quotas."""
        states = {"Name": "instance-state-name", "Values": ["pending", "running"]}
        return self._all(_INSTANCES, {"Filters": [states], "MaxResults": 1000})

    def tagged(self, tags: Mapping[str, str]) -> list[Answer]:
        """Return the reservations of machines with these tags in any state, also ended; an empty value is any."""
        asked: list[dict[str, Any]] = []
        for key, value in tags.items():
            name, wanted = (f"tag:{key}", value) if value else ("tag-key", key)
            asked.append({"Name": name, "Values": [wanted]})
        return self._all(_INSTANCES, {"Filters": asked, "MaxResults": 1000})

    def terminate(self, ids: Sequence[str]) -> None:
        """End machines, all or none of them."""
        self._once(_TERMINATE, {"InstanceIds": list(ids)})

    def tag(self, ids: Sequence[str], tags: Mapping[str, str]) -> None:
        """Set tags."""
        self._once(_TAG, {"Resources": list(ids), "Tags": [{"Key": key, "Value": tags[key]} for key in tags]})

    def quotas(self) -> list[Answer]:
        """Return the account's limits for EC2."""
        return self._all(_QUOTAS, {"ServiceCode": "ec2"})

    def placement_scores(self, instance_type: str) -> list[Answer]:
        """Return how likely AWS thinks one spot machine is in each zone (by id), 1 to 10."""
        asked = {"InstanceTypes": [instance_type], "TargetCapacity": 1, "SingleAvailabilityZone": True}
        return self._all(_SCORES, {**asked, "RegionNames": [self.name]})

    def products(self) -> list[str]:
        """Return the on-demand price list of the region: Linux, shared tenancy, nothing reserved; JSON texts.

        The list has an endpoint in one region of each partition only: us-east-1, China's cn-northwest-1.
        """
        wanted = {
            "regionCode": self.name,
            "operatingSystem": "Linux",
            "preInstalledSw": "NA",
            "tenancy": "Shared",
            "capacitystatus": "Used",
            "marketoption": "OnDemand",
        }
        filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.items()]
        where = "cn-northwest-1" if self.name.startswith("cn-") else "us-east-1"
        return self._all(_PRODUCTS._replace(region=where), {"ServiceCode": "AmazonEC2", "Filters": filters})

    def dry_run(self, operation: str, action: str, asked: Mapping[str, Any]) -> Answer:
        """Ask EC2 whether we might; it never does it. Raises AwsError with code DryRunOperation for yes."""
        return self._once(Call("ec2", operation, action=action), {**asked, "DryRun": True})

    def images(self, name: str) -> list[Answer]:
        """Return Amazon's own machine images whose name matches a pattern, x86_64."""
        filters = [{"Name": "name", "Values": [name]}, {"Name": "architecture", "Values": ["x86_64"]}]
        call = Call("ec2", "describe_images", "Images", "ec2:DescribeImages")
        return self._all(call, {"Owners": ["amazon"], "Filters": filters})

    def _all(self, call: Call, asked: Mapping[str, Any]) -> list[Any]:
        found: list[Any] = []
        token = None
        for _ in range(MAX_PAGES):
            answer = self._once(call, {**asked, **({"NextToken": token} if token else {})})
            page = answer.get(call.lists)
            found.extend(page if isinstance(page, list) else ())
            last, token = token, answer.get("NextToken")
            if not token:
                return found
            if token == last:
                break
        raise AwsError(self._asked(call), "the answer goes round in circles; try again later")

    def _once(self, call: Call, asked: Mapping[str, Any]) -> Answer:
        if time.monotonic() > self._ends_at_s:
            limit = self._account.patience.region_s
            raise AwsError(self._asked(call), f"the region took over {limit:g} s; try again later", Why.SILENT)
        with said_plainly(self._asked(call), call.action):
            client = self._account.client(call.service, call.region or self.name)
            answer = getattr(client, call.operation)(**asked)
            return answer if isinstance(answer, dict) else {}

    def _asked(self, call: Call) -> str:
        return f"{self.name}, {call.name}"
