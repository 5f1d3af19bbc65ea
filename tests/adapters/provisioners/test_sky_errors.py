"""What SkyPilot's failures mean. AWS's were recorded from real launches of SkyPilot 0.14.1 on an emulated EC2."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.adapters.provisioners.sky_errors import KINDS, MAX_SAID_CHARS, NOT_LISTED, refusal
from hexcloud.domain.errors import (
    GLOBAL_GPUS,
    CapacityError,
    CredentialsError,
    ProvisionError,
    QuotaError,
    RateLimitError,
    UnknownProvisionError,
)
from hexcloud.domain.offer import Offer
from tests.adapters.provisioners.renting import OFFER

RECORDED = json.loads(Path(__file__).with_name("sky_refusals.json").read_text())


@pytest.fixture(scope="module")
def exceptions() -> Any:
    """SkyPilot's real classes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries that it uses in an old way
        from sky import exceptions
    return exceptions


def replayed(name: str, exceptions: Any) -> Exception:
    """Build a recorded exception again."""
    history = [getattr(exceptions, kind)(said) for kind, said in RECORDED[name]["history"]]
    error: Exception = exceptions.ResourcesUnavailableError(RECORDED[name]["said"], failover_history=history)
    return error


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("InsufficientInstanceCapacity", CapacityError, "InsufficientInstanceCapacity"),
        ("Unsupported", CapacityError, "Unsupported"),
        ("SpotMaxPriceTooLow", CapacityError, "SpotMaxPriceTooLow"),
        ("InsufficientFreeAddressesInSubnet", CapacityError, "InsufficientFreeAddressesInSubnet"),
        ("VcpuLimitExceeded", QuotaError, "VcpuLimitExceeded"),
        ("MaxSpotInstanceCountExceeded", QuotaError, "MaxSpotInstanceCountExceeded"),
        ("expired_run", CredentialsError, "RequestExpired"),
        ("expired_all", CredentialsError, "ExpiredToken"),
        ("denied", UnknownProvisionError, "UnauthorizedOperation"),
        ("SomethingNew", UnknownProvisionError, "SomethingNew"),
    ],
)
def test_a_recorded_refusal_of_aws_has_its_kind_and_its_raw_code(
    name: str, kind: type[ProvisionError], code: str, offer: Offer, exceptions: Any
) -> None:
    error = refusal(replayed(name, exceptions), RECORDED[name]["log"], offer)
    assert type(error) is kind
    assert (error.code, error.offer_id) == (code, offer.id)
    assert str(error).startswith(f"{offer.id}: ") and code in str(error)
    assert "\n" not in str(error) and "\x1b" not in str(error)


def test_a_line_says_what_the_cloud_said(offer: Offer, exceptions: Any) -> None:
    name = "InsufficientInstanceCapacity"
    said = str(refusal(replayed(name, exceptions), RECORDED[name]["log"], offer))
    assert said.startswith(f"{offer.id}: We currently do not have sufficient g5.xlarge capacity in the Availability")


def test_expired_credentials_and_missing_permissions_say_what_to_do(offer: Offer, exceptions: Any) -> None:
    lines = {name: str(refusal(replayed(name, exceptions), RECORDED[name]["log"], offer)) for name in RECORDED}
    assert "sign in to the cloud again" in lines["expired_all"]
    assert "ec2:RunInstances" in lines["denied"]


def google(codes: str, said: str) -> str:
    """As SkyPilot 0.14.1 logs the errors of an operation of Compute Engine."""
    return f"\x1b[2mW instance_utils.py:155] Got return code{codes} in us-central1-a: {said}\x1b[0m\n"


@pytest.mark.parametrize(
    ("log", "kind", "code"),
    [
        (google(" 'ZONE_RESOURCE_POOL_EXHAUSTED'", "\"The zone 'x' has not enough\""), CapacityError, None),
        (google(" 'ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS'", "'try later'"), CapacityError, None),
        (google(" 'RESOURCE_NOT_FOUND'", "'gone'"), CapacityError, None),
        (google(" 'UNSUPPORTED_OPERATION'", "'taken while it was made'"), CapacityError, None),
        (google(" 'insufficientCapacity'", "'x'"), CapacityError, None),
        (
            google("s 'VM_MIN_COUNT_NOT_REACHED', 'ZONE_RESOURCE_POOL_EXHAUSTED'", "'2 VMs'; 'not enough'"),
            CapacityError,
            "ZONE_RESOURCE_POOL_EXHAUSTED",
        ),
        (google(" 'QUOTA_EXCEEDED'", "\"Quota 'NVIDIA_L4_GPUS' exceeded in region us-central1\""), QuotaError, None),
        (google(" 'QUOTA_EXCEEDED'", "\"Quota 'GPUS_ALL_REGIONS' exceeded globally\""), QuotaError, GLOBAL_GPUS),
        (google(" 'rateLimitExceeded'", "'Rate Limit Exceeded'"), RateLimitError, None),
        (google(" 'SOMETHING_NEW'", "'nobody has seen this'"), UnknownProvisionError, "SOMETHING_NEW"),
    ],
)
def test_a_refusal_of_google_cloud_is_known_by_its_reason(
    log: str, kind: type[ProvisionError], code: str | None, offer: Offer, exceptions: Any
) -> None:
    error = refusal(exceptions.ResourcesUnavailableError("Failed to acquire resources"), log, offer)
    assert type(error) is kind
    assert error.code == (code or log.split("'")[1])


def test_throttling_that_skypilot_gave_up_on_is_no_fault_of_the_pool(offer: Offer) -> None:
    log = "AWS handler error: Failed to call ec2 function due to RequestLimitExceeded. Max attempts exceeded."
    error = refusal(RuntimeError("Failed"), log, offer)
    assert type(error) is RateLimitError and error.code == "RequestLimitExceeded"


@pytest.mark.parametrize("code", ["InvalidPermission.Duplicate", "InvalidGroup.Duplicate"])
def test_launches_that_race_for_skypilot_s_security_group_are_to_be_asked_again(code: str, offer: Offer) -> None:
    log = f"An error occurred ({code}) when calling the AuthorizeSecurityGroupIngress operation: it already exists"
    error = refusal(RuntimeError("Failed to set up SkyPilot runtime"), log, offer)
    assert type(error) is RateLimitError and error.code == code


def test_what_only_skypilot_refuses_is_told_apart(offer: Offer, exceptions: Any) -> None:
    missing = refusal(ValueError("No instance type g5.new found."), "", offer)
    assert missing.code == NOT_LISTED and "hexcloud catalog export" in str(missing)
    no_quota = refusal(exceptions.ResourcesUnavailableError("Found no quota for g5.xlarge spot instances"), "", offer)
    assert type(no_quota) is QuotaError
    nobody = refusal(exceptions.NoCloudAccessError("Cloud is not enabled"), "", offer)
    assert type(nobody) is CredentialsError and "sky check" in str(nobody)
    expired = refusal(exceptions.CloudUserIdentityError("AWS access token is expired."), "", offer)
    assert type(expired) is CredentialsError
    odd = refusal(RuntimeError("Failed to SSH to 10.0.0.1 after timeout 600s"), "", offer)
    assert type(odd) is UnknownProvisionError and odd.code == "RuntimeError" and "Failed to SSH" in str(odd)


def test_a_code_of_another_call_does_not_hide_that_of_the_launch(offer: Offer) -> None:
    log = (
        "An error occurred (InsufficientInstanceCapacity) when calling the RunInstances operation: sold out\n"
        "An error occurred (InvalidGroup.NotFound) when calling the DeleteSecurityGroup operation: no such group\n"
    )
    assert refusal(RuntimeError("x"), log, offer).code == "InsufficientInstanceCapacity"


def test_no_password_in_a_url_is_repeated(offer: Offer) -> None:
    log = "An error occurred (New) when calling the RunInstances operation: ask https://me:secret@example.com/x"
    assert "secret" not in str(refusal(RuntimeError("x"), log, offer))


@given(log=st.text(max_size=200), said=st.text(max_size=200), code=st.sampled_from(sorted(KINDS)))
def test_any_text_gives_one_line_and_a_known_code_is_found_in_any_noise(log: str, said: str, code: str) -> None:
    assert len(str(refusal(RuntimeError(said), log, OFFER)).splitlines()) <= 1
    whole = f"{log}\nAn error occurred ({code}) when calling the RunInstances operation: {said}x\n"
    error = refusal(RuntimeError("nothing"), whole, OFFER)
    assert KINDS.get(error.code) is type(error) and len(str(error)) < 3 * MAX_SAID_CHARS
