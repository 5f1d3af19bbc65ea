"""What an account has before hexcloud comes: networks, the nodes' role, a bucket; SkyPilot's settings and images."""

import csv
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.cloud.metadata import ROLE

VPC = "hexcloud-bed"
BUCKET = "hexcloud-store"
IMAGE_ID = "ami-785db401"
"""An Ubuntu that moto lists in every region."""
IMAGE_TAGS = ("custom-cpu-ubuntu", "custom-gpu-ubuntu", "custom-gpu-ubuntu-cuda13")
CATALOG = Path(".sky/catalogs/v8")
FIRST_NETWORK = 77
Client = Callable[[str, str], Any]


def seed_account(client: Client, regions: Iterable[str]) -> None:
    """Make one network with a private subnet per zone in each region, the role of nodes, and the bucket for stores.

    SkyPilot makes role and network itself on a real account; moto refuses two of those calls.
    """
    for number, region in enumerate(regions, FIRST_NETWORK):
        _seed_network(client("ec2", region), number)
    iam = client("iam", "us-east-1")
    allowed = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    trust = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument=trust)
    iam.create_instance_profile(InstanceProfileName=ROLE)
    iam.add_role_to_instance_profile(InstanceProfileName=ROLE, RoleName=ROLE)
    client("s3", "us-east-1").create_bucket(Bucket=BUCKET)


def _seed_network(ec2: Any, number: int) -> None:
    vpc = ec2.create_vpc(CidrBlock=f"10.{number}.0.0/16")["Vpc"]["VpcId"]
    ec2.create_tags(Resources=[vpc], Tags=[{"Key": "Name", "Value": VPC}])
    for place, zone in enumerate(ec2.describe_availability_zones()["AvailabilityZones"]):
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.{number}.{16 * place}.0/20", AvailabilityZone=zone["ZoneName"])


def seed_home(home: Path, endpoint: str, regions: Iterable[str]) -> None:
    """Write SkyPilot's settings, and the one list of its catalog that hexcloud does not export: images."""
    aws = {"vpc_names": VPC, "use_internal_ips": True, "use_ssm": False}
    plugin = {"class": "tests.e2e.cloud.sky_plugin.Reachable", "parameters": {"url": f"{endpoint}/moto-api/"}}
    (home / CATALOG / "aws").mkdir(parents=True)
    (home / ".sky/config.yaml").write_text(yaml.safe_dump({"aws": aws, "allowed_clouds": ["aws"]}))
    (home / ".sky/plugins.yaml").write_text(yaml.safe_dump({"plugins": [plugin]}))
    with (home / CATALOG / "aws/images.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["Tag", "Region", "OS", "OSVersion", "ImageId", "CreationDate", "BaseImageId"])
        for region in regions:
            for tag in IMAGE_TAGS:
                writer.writerow([f"skypilot:{tag}", region, "ubuntu", "22.04", IMAGE_ID, "20250101", IMAGE_ID])


def seed_keys(home: Path, keys: Mapping[str, str]) -> None:
    """Write the AWS keys of this account's user as `aws configure` does."""
    (home / ".aws").mkdir()
    lines = [f"{name.lower()} = {value}" for name, value in keys.items()]
    (home / ".aws/credentials").write_text("\n".join(["[default]", *lines, ""]))
