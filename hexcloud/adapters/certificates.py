"""A run's own certificate authority, and the certificate by which a coordinator proves that it is that run's.

Everything follows from the run's key and birth: a restarted controller has the same authority, and no file keeps it.
Keys are Ed25519 (RFC 8032), whose signatures need no chance; certificates are X.509 (RFC 5280).
"""

import hashlib
import hmac
import ssl
from datetime import UTC, datetime, timedelta
from tempfile import NamedTemporaryFile

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hexcloud.domain.errors import ConfigError
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.trust import COORDINATOR_NAME

CLOCKS_DIFFER = timedelta(days=1)
"""A machine's clock may be behind when it looks at a certificate that was just made."""
LASTS = timedelta(days=5 * 365)
"""Longer than any run; the key lives in the run's folder only, and the head's on one machine."""


class RunAuthority:
    """Implements ports.Authority."""

    def __init__(self, key: bytes, made_at_s: float) -> None:
        """`key` is the run's, at least 16 random bytes; `made_at_s` the run's birth, seconds since the epoch."""
        self._key = key
        self._from = datetime.fromtimestamp(int(made_at_s), UTC) - CLOCKS_DIFFER
        self._signer = self._derive("authority")

    @property
    def ca_pem(self) -> str:
        """The authority's certificate, public: who has it accepts what the authority signed and nothing else."""
        public = self._signer.public_key()
        may_sign = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        certificate = (
            self._begun(public, "hexcloud run")
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(may_sign, critical=True)
            .sign(self._signer, None)
        )
        return certificate.public_bytes(serialization.Encoding.PEM).decode()

    def certificate(self, node_id: NodeId) -> str:
        """Return the certificate (PEM, public) of a head, for the coordinator's name."""
        public = self._derive(f"head:{node_id}").public_key()
        may_prove = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
        certificate = (
            self._begun(public, COORDINATOR_NAME)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(may_prove, critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(COORDINATOR_NAME)]), critical=False)
            .sign(self._signer, None)
        )
        return certificate.public_bytes(serialization.Encoding.PEM).decode()

    def private_key(self, node_id: NodeId) -> str:
        """Return a head's secret key, hex: one line, so that it travels in an environment variable."""
        return self._derive(f"head:{node_id}").private_bytes_raw().hex()

    def _derive(self, purpose: str) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(
            hmac.new(self._key, f"certificate:{purpose}".encode(), hashlib.sha256).digest()
        )

    def _begun(self, public: Ed25519PublicKey, name: str) -> x509.CertificateBuilder:
        number = hashlib.sha256(public.public_bytes_raw()).digest()[:16]
        signer = self._signer.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named("hexcloud run"))
            .public_key(public)
            .serial_number(int.from_bytes(number, "big") >> 1 | 1)
            .not_valid_before(self._from)
            .not_valid_after(self._from + LASTS)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
        )


def server_context(certificate: str, private_key: str) -> ssl.SSLContext:
    """Return what serves with a head's certificate (PEM) and key (hex). Raises ConfigError when they don't belong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(private_key))
        with NamedTemporaryFile(suffix=".pem") as file:  # only its owner can read it, and it goes at once
            file.write(certificate.encode() + _pem(key))
            file.flush()
            context.load_cert_chain(file.name)
    except (ValueError, ssl.SSLError):
        raise ConfigError("the coordinator's certificate and its key do not belong together") from None
    return context


def _pem(key: Ed25519PrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
