"""Trust: how whoever dials the coordinator knows that it is the right one, and that nobody listens.

Its address is not known when its certificate is made, so it proves a name instead, by the run's own authority.
"""

import ipaddress
import ssl
from urllib.parse import urlsplit

from hexcloud.domain.errors import EngineError

COORDINATOR_NAME = "coordinator.hexcloud"
"""The name in the coordinator's certificate, asked for and checked in the place of its address."""


def trusted_by(ca_pem: str) -> ssl.SSLContext:
    """Return what accepts certificates of this authority and of no other. Raises EngineError when it is none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks name and chain
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if ca_pem:
        try:
            context.load_verify_locations(cadata=ca_pem)
        except (ssl.SSLError, ValueError) as error:
            raise EngineError(f"the run's certificate authority cannot be read: {error}") from error
    return context


def is_loopback(host: str) -> bool:
    """Does this address lead to no other machine?"""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def require_private(url: str) -> None:
    """Raise EngineError unless nobody can read along: https, or an address of this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError as error:
        raise EngineError(f"{url}: no address: {error}") from error
    if parts.scheme != "https" and not is_loopback(host):
        raise EngineError(f"{url}: not https, and not this machine: no token is sent there")
