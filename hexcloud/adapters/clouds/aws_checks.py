"""What must be true of an AWS account before a plan rents there: credentials, permissions, quota. Changes nothing."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hexcloud.adapters.clouds import aws_answers as answers
from hexcloud.adapters.clouds.aws import AwsAccount, AwsRegion, Patience
from hexcloud.adapters.clouds.aws_errors import AwsError, Why
from hexcloud.adapters.clouds.aws_quotas import quotas_left
from hexcloud.domain.market import Quota

PROBE_TYPE = "t3.micro"
PROBE_IMAGE = "al2023-ami-2023*-x86_64"
"""Amazon Linux: the image that EC2 is asked about only has to exist."""
NO_INSTANCE = "i-00000000000000000"
GRANTED = "DryRunOperation"
UNTRIED = frozenset({"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"})
"""EC2 looks for the machine before it looks at the permission."""


AwsCheck = tuple[str, bool, str]
"""Name of what must be true, is it, and what was found."""


def aws_checks(
    regions: tuple[str, ...],
    needs: Mapping[str, float],
    types: Mapping[str, str] | None = None,
    patience: Patience | None = None,
) -> list[AwsCheck]:
    """Check the credentials, then in each region the permissions and the quota.

    `needs`: quota key (`aws/us-east-1/L-417A185B`) -> vCPUs; regions named there only are checked too. With no region
    at all, the user's own.
    `types`: region -> a machine that the plan starts there, so that a permission for other machines does not pass.
    Never raises for what AWS refuses, and rents nothing: EC2 is asked for dry runs only.
    """
    account = AwsAccount(patience or Patience())
    named = dict.fromkeys([*regions, *(types or {}), *(key.split("/")[1] for key in sorted(needs))])
    try:
        home = AwsRegion(account, account.home_region(tuple(named)))
        who = _check("aws credentials", lambda: _identity(home))
        checks = [who]
        for name in (named or {home.name: None}) if who[1] else ():
            region = AwsRegion(account, name)
            checks.extend(_permissions(region, (types or {}).get(name, PROBE_TYPE)))
            checks.extend(_quotas(region, {key: need for key, need in needs.items() if key.split("/")[1] == name}))
        return checks
    except AwsError as error:
        return [("aws credentials", False, str(error))]
    finally:
        account.close()


def _check(name: str, find: Callable[[], str]) -> AwsCheck:
    try:
        return (name, True, find())
    except AwsError as error:
        return (name, False, str(error))


def _identity(home: AwsRegion) -> str:
    who = home.identity()
    return f"{answers.text(who, 'Arn')}, account {answers.text(who, 'Account')}"


def _permissions(region: AwsRegion, instance_type: str) -> Iterator[AwsCheck]:
    """May we start, see and end machines?"""
    yield _check(f"aws {region.name} RunInstances", lambda: _may_start(region, instance_type))
    yield _check(
        f"aws {region.name} DescribeInstances",
        lambda: _may(region, "describe_instances", "ec2:DescribeInstances", {}),
    )
    yield _check(
        f"aws {region.name} TerminateInstances",
        lambda: _may(region, "terminate_instances", "ec2:TerminateInstances", {"InstanceIds": [NO_INSTANCE]}),
    )


def _may_start(region: AwsRegion, instance_type: str) -> str:
    ids = sorted({answers.text(image, "ImageId") for image in region.images(PROBE_IMAGE)} - {""})
    if not ids:
        raise AwsError(f"{region.name}, DescribeImages", f"no image {PROBE_IMAGE} to ask about", Why.EMPTY)
    asked = {"ImageId": ids[-1], "InstanceType": instance_type, "MinCount": 1, "MaxCount": 1}
    return f"{_may(region, 'run_instances', 'ec2:RunInstances', asked)}, {instance_type}"


def _may(region: AwsRegion, operation: str, action: str, asked: Mapping[str, Any]) -> str:
    """Return `allowed`, as far as a dry run tells. Raises AwsError for a refusal."""
    try:
        region.dry_run(operation, action, asked)
    except AwsError as error:
        if error.code in UNTRIED:
            return "not refused; without a machine AWS does not say more"
        if error.code != GRANTED:
            raise
    return "allowed"


def _quotas(region: AwsRegion, needs: Mapping[str, float]) -> list[AwsCheck]:
    if not needs:
        return []
    try:
        quotas = read_quotas(region)
    except AwsError as error:
        return [(f"quota {key}", False, str(error)) for key in sorted(needs)]
    known = {quota.key: quota for quota in quotas}
    return [_quota(key, need, known.get(key)) for key, need in sorted(needs.items())]


def read_quotas(region: AwsRegion) -> tuple[Quota, ...]:
    """Return what is left of each limit of a region after the machines that run there. Raises AwsError."""
    machines = answers.machines(region.instance_types())
    limits = answers.limits(region.quotas())
    return quotas_left(region.name, limits, answers.used(region.instances(), machines))


def _quota(key: str, need: float, quota: Quota | None) -> AwsCheck:
    code = key.rpartition("/")[2]
    if quota is None:
        return (f"quota {key}", False, f"{need:g} vCPUs needed, but AWS lists no limit {code} in this region")
    found = f"{need:g} vCPUs needed, {quota.left:g} left of {quota.limit:g}"
    if need > quota.left:
        return (f"quota {key}", False, f"{found}; ask AWS for more: Service Quotas, Amazon EC2, {code}")
    return (f"quota {key}", True, found)
