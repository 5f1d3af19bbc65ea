"""What a failed SkyPilot request means: its exception and its log, read for the cloud's own code, as a typed error.

SkyPilot 0.14 swallows the cloud's exception: what it raises says only that nothing could be acquired. The code is in
the request's log, where the provisioner warns of the attempt that failed.
Scopes of the codes: EC2 API reference, "Error codes"; Compute Engine, "Troubleshooting VM creation"; the fail-over
tables of SkyPilot and Karpenter.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from hexcloud.adapters.clouds.discreet import discreet
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

Kind = type[ProvisionError]
MAX_SAID_CHARS = 300
NOT_LISTED = "not_in_skypilot_catalog"
_CAPACITY = (
    "InsufficientCapacity",
    "InsufficientCapacityOnOutpost",
    "InsufficientFreeAddressesInSubnet",
    "InsufficientHostCapacity",
    "InsufficientInstanceCapacity",
    "InsufficientReservedInstanceCapacity",
    "SpotMaxPriceTooLow",
    "UnfulfillableCapacity",
    "Unsupported",
    "RESOURCE_NOT_FOUND",
    "RESOURCE_NOT_READY",
    "UNSUPPORTED_OPERATION",
    "ZONE_RESOURCE_POOL_EXHAUSTED",
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
    "insufficientCapacity",
)
_QUOTA = (
    "InstanceLimitExceeded",
    "MaxSpotInstanceCountExceeded",
    "VcpuLimitExceeded",
    GLOBAL_GPUS,
    "QUOTA_EXCEEDED",
    "quotaExceeded",
)
_RATE = (
    "EC2ThrottledException",
    "InvalidGroup.Duplicate",
    "InvalidPermission.Duplicate",
    "RequestLimitExceeded",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "RATE_LIMIT_EXCEEDED",
    "RESOURCE_OPERATION_RATE_EXCEEDED",
    "rateLimitExceeded",
)
_CREDENTIALS = (
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidClientTokenId",
    "InvalidClientToken",
    "RequestExpired",
    "UnrecognizedClientException",
    "CloudUserIdentityError",
    "InvalidCloudCredentials",
    "NoCloudAccessError",
)
KINDS: dict[str, Kind] = {
    **dict.fromkeys(_CAPACITY, CapacityError),
    **dict.fromkeys(_QUOTA, QuotaError),
    **dict.fromkeys(_RATE, RateLimitError),
    **dict.fromkeys(_CREDENTIALS, CredentialsError),
}
"""The cloud's code, or the name of SkyPilot's exception, -> what the caller does next. Anything else is unknown."""
_MENDS = {
    NOT_LISTED: "run `hexcloud catalog export ~/.sky/catalogs/v8`, so that SkyPilot lists what hexcloud plans with",
    "CloudUserIdentityError": "sign in to the cloud again, then `sky check`",
    "InvalidCloudCredentials": "sign in to the cloud again, then `sky check`",
    "NoCloudAccessError": "run `sky check` and enable the cloud",
    "ExpiredToken": "sign in to the cloud again, then `sky check`",
    "RequestExpired": "sign in to the cloud again, or set this machine's clock",
    "UnauthorizedOperation": "ask for the IAM permission ec2:RunInstances, or for what its conditions leave out",
}

_AWS = re.compile(
    r"An error occurred \((?P<code>[\w.]+)\) when calling the (?P<call>\w+) operation(?: \([^)]*\))?: ?(?P<said>.*)"
)
_AWS_BARE = re.compile(r"Error code:\s*(?P<code>[A-Z][A-Za-z.]+)|due to (?P<late>RequestLimitExceeded)\.")
_GCP = re.compile(r"Got return codes? (?P<codes>'[^\n]*?)(?: in [\w-]+)?: (?P<said>['\"].+)")
_QUOTED = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\"""")
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NOISE = re.compile(r"View logs|Job \d+ |^[├└│]|job_id|To cancel|Tailing logs|ERROR: .*return code|^$")
"""Lines that SkyPilot adds behind what was said."""
_LISTED = re.compile(
    r"(?:Invalid|No) (?:instance type|zone|region|accelerator)|Catalog does not contain|not found in the"
)
_STARTS = frozenset({"RunInstances", "StartInstances", "CreateFleet"})
_WRAPPERS = frozenset({"VM_MIN_COUNT_NOT_REACHED"})
"""Codes that only say that there is another one."""


class Found(NamedTuple):
    """A code, and what was said with it."""

    code: str
    said: str


def refusal(error: BaseException, log: str, offer: Offer) -> ProvisionError:
    """Return what a failed launch means. `log` is the log of the request; neither is believed to be whole."""
    texts = (log, *(str(part) for part in getattr(error, "failover_history", ())), str(error))
    found = _pick(tuple(code for text in texts for code in _codes(_COLOUR.sub("", text))))
    found = found or _of_skypilot(error, _COLOUR.sub("", "\n".join(texts)))
    said = _line(found.said or last_line(str(error)))
    mend = f"; {_MENDS[found.code]}" if found.code in _MENDS else ""
    return KINDS.get(found.code, UnknownProvisionError)(
        f"{offer.id}: {said} ({found.code}){mend}", offer.id, found.code
    )


def _pick(found: tuple[Found, ...]) -> Found | None:
    """Return the last code that the table knows, else the last one: what came after the first may be its echo."""
    told = [one for one in found if one.code not in _WRAPPERS]
    known = [one for one in told if one.code in KINDS]
    return next(reversed(known or told), None)


def _codes(text: str) -> Iterator[Found]:
    """Yield the codes of clouds in a text, those of other calls than for machines only where they are known."""
    for match in _AWS.finditer(text):
        if match["call"] in _STARTS or match["code"] in KINDS:
            yield Found(match["code"], match["said"])
    for match in _AWS_BARE.finditer(text):
        yield Found(match["code"] or match["late"], "")
    for match in _GCP.finditer(text):
        codes, said = _quoted(match["codes"]), _quoted(match["said"])
        yield from (_of_google(code, said[at] if at < len(said) else match["said"]) for at, code in enumerate(codes))


def _quoted(text: str) -> list[str]:
    return [single or double for single, double in _QUOTED.findall(text)]


def _of_google(code: str, said: str) -> Found:
    is_global = code in ("QUOTA_EXCEEDED", "quotaExceeded") and GLOBAL_GPUS in said
    return Found(GLOBAL_GPUS if is_global else code, said)


def _of_skypilot(error: BaseException, text: str) -> Found:
    """No cloud has spoken: it is SkyPilot itself that does not want to."""
    name = type(error).__name__
    if "Found no quota for" in text:
        return Found("VcpuLimitExceeded", "the account has no quota for such machines there")
    if "invalid cloud credentials" in text or "InvalidCloudCredentials" in text:
        return Found("InvalidCloudCredentials", "the cloud does not accept the credentials")
    if name in KINDS:
        return Found(name, str(error))
    if name != "ResourcesUnavailableError" and _LISTED.search(text):
        return Found(NOT_LISTED, str(error))
    return Found(name, last_line(text))


def last_line(text: str) -> str:
    """Return the last line that says something, without colours and secrets in URLs; reasons stand at the end."""
    lines = [line.strip() for line in _COLOUR.sub("", text).splitlines() if line.strip()]
    return _line(next((line for line in reversed(lines) if not _NOISE.search(line)), ""))


def _line(text: str) -> str:
    line = discreet(_COLOUR.sub("", text))
    return line if len(line) <= MAX_SAID_CHARS else line[: MAX_SAID_CHARS - 3] + "..."
