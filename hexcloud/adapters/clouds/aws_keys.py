"""AWS keys and region from wherever the SDK finds them: profiles, single sign-on, a machine's role."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

FRESH_FOR = timedelta(minutes=5)
"""The SDK renews keys before they end; ours are asked for again after this."""


@dataclass(frozen=True)
class SdkAccount:
    """What the SDK knows of the user's account."""

    keys: Callable[[], dict[str, Any]] = field(repr=False)
    """Gives the present keys: access_key_id, secret_access_key, token, expires_at."""
    region: str
    """Empty when none is set."""


def sdk_account() -> SdkAccount | None:
    """Return the account of the user's AWS settings; None without the SDK (rented machines) or without any keys."""
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
    except ImportError:
        return None
    try:
        session = boto3.Session()
        found = session.get_credentials()
    except BotoCoreError:
        return None
    return None if found is None else SdkAccount(lambda: _present(found), session.region_name or "")


def _present(found: Any) -> dict[str, Any]:
    frozen = found.get_frozen_credentials()
    return {
        "access_key_id": frozen.access_key,
        "secret_access_key": frozen.secret_key,
        "token": frozen.token,
        "expires_at": datetime.now(UTC) + FRESH_FOR,
    }
