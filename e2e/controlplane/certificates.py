"""Certificates for a control plane that lives for one test run.

A machine that runs the tests may have no ``openssl``; ``cryptography`` is a dependency of the
project anyway. Keys are elliptic-curve ones, which are made in no time.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=30)
CLOCK_SLACK = datetime.timedelta(minutes=5)


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, both in PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str = "tls") -> tuple[Path, Path]:
        """Write ``name.crt`` and ``name.key``; only the owner can read the key."""
        folder.mkdir(parents=True, exist_ok=True)
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        certificate.unlink(missing_ok=True)  # it may be another user's
        certificate.write_bytes(self.certificate)
        write_private(key, self.key)
        return certificate, key


class Authority:
    """A certificate authority that signs one server's and any number of clients' certificates."""

    def __init__(self, name: str = "quota-translator-tests") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_signs_certificates(), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = self._certificate.public_bytes(serialization.Encoding.PEM)

    def server(self, name: str, hosts: Sequence[str], addresses: Sequence[str]) -> Pair:
        """A serving certificate for these host names and IP addresses."""
        names: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self._issue(
            subject, ExtendedKeyUsageOID.SERVER_AUTH, x509.SubjectAlternativeName(names)
        )

    def client(self, user: str, groups: Sequence[str]) -> Pair:
        """A client certificate: Kubernetes reads the user and the groups from its subject."""
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        return self._issue(x509.Name(attributes), ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _issue(
        self,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(subject, self._name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Pair(certificate.public_bytes(serialization.Encoding.PEM), private_pem(key))


def signing_keys() -> tuple[bytes, bytes]:
    """A private and a public key, for service account tokens."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return private_pem(key), public


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def write_private(path: Path, content: bytes) -> None:
    """Write a file that nobody else can read, at no moment."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)


def is_usable(folder: Path, name: str = "tls") -> bool:
    """Whether the folder holds a pair that fits together and is valid for another day."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
        loaded = x509.load_pem_x509_certificate(certificate.read_bytes())
    except (OSError, ValueError):
        return False
    return loaded.not_valid_after_utc > _now() + datetime.timedelta(days=1)


def _signs_certificates() -> x509.KeyUsage:
    """Python 3.13 and later refuse an authority that does not state this."""
    return x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = _now()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SLACK)
        .not_valid_after(now + LIFETIME)
    )


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
