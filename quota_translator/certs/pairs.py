"""Pairs of a certificate and its private key: made and read. Pure, given a clock.

Each certificate has an authority of its own, whose key signs once and is then forgotten. Nothing
that could sign a second one is kept anywhere, an authority never outlives what it signed, and a new
certificate always comes the same way: with a new authority beside the old one in the CA bundle.
"""

import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SKEW: Final = timedelta(minutes=5)  # the API server's clock may be behind by this much
LONGEST: Final = timedelta(days=365)
_SUBJECT: Final = "quota-translator webhook"
_T = TypeVar("_T")


class PairError(Exception):
    """A pair that must not be served; one line says why, and nothing of the key is in it."""


class Authority(NamedTuple):
    """A certificate that signs."""

    pem: bytes
    not_after: datetime


@dataclass(frozen=True)
class Pair:
    """A certificate and its key. `not_after` is also not beyond that of the authority."""

    chain: bytes = field(repr=False)  # PEM, the server's own certificate first
    key: bytes = field(repr=False)  # PEM
    authority: bytes = field(repr=False)  # PEM of what signed it; b"": others' business
    names: frozenset[str]
    not_before: datetime
    not_after: datetime

    def lacks(self, names: Iterable[str]) -> list[str]:
        """Those of `names` for which a client would not accept it."""
        return [name for name in map(_plain, names) if not self._bears(name)]

    def _bears(self, name: str) -> bool:
        _, _, domain = name.partition(".")
        return name in self.names or f"*.{domain}" in self.names


def names_for(service: str, namespace: str, extra: Iterable[str] = ()) -> tuple[str, ...]:
    """The names by which a Service is called, and `extra` ones (host names or IP addresses)."""
    qualified = f"{service}.{namespace}"
    own = (service, qualified, f"{qualified}.svc", f"{qualified}.svc.cluster.local")
    return tuple(dict.fromkeys(map(_plain, (*own, *extra))))


def issue(names: Iterable[str], lifetime: float, wall: datetime) -> Pair:
    """A new pair and its authority, valid for `lifetime` seconds from now, at most a year."""
    begin = wall.replace(microsecond=0) - SKEW
    end = begin + min(timedelta(seconds=lifetime) + SKEW, LONGEST)
    signing, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = _name(f"{_SUBJECT} CA {begin + SKEW:%Y-%m-%dT%H:%M:%SZ}")
    authority = (
        _builder(issuer, issuer, signing.public_key(), begin, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(signing, hashes.SHA256())
    )
    found = tuple(dict.fromkeys(map(_plain, names)))
    usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    leaf = (
        _builder(_name(_SUBJECT), issuer, key.public_key(), begin, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(usages, critical=False)
        .add_extension(x509.SubjectAlternativeName(list(map(_general, found))), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()),
            critical=False,
        )
        .sign(signing, hashes.SHA256())
    )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return Pair(_pem(leaf), key_pem, _pem(authority), frozenset(found), begin, end)


def read_pair(chain: bytes, key: bytes, authorities: bytes | None = None) -> Pair:
    """The pair of these PEM texts; `authorities`, where given, must hold the one that signed it.

    Raises PairError, which never holds any of the bytes.
    """
    leaf = _certificates("tls.crt", chain)[0]
    private = _parsed("tls.key", lambda: serialization.load_pem_private_key(key, None))
    if private.public_key() != _parsed("tls.crt", leaf.public_key):
        raise PairError("tls.key is not the key of tls.crt")
    names = _parsed("tls.crt", lambda: _names(leaf))
    begin, end = leaf.not_valid_before_utc, leaf.not_valid_after_utc
    if authorities is None:
        return Pair(chain, key, b"", names, begin, end)
    signer = _signer(leaf, authorities)
    return Pair(chain, key, signer.pem, names, begin, min(end, signer.not_after))


def read_authorities(pem: bytes) -> tuple[Authority, ...]:
    """The certificates of a bundle, in their order. Raises PairError."""
    return tuple(
        Authority(_pem(one), one.not_valid_after_utc) for one in _certificates("CA bundle", pem)
    )


# --- X.509 --------------------------------------------------------------------------------------


def _plain(name: str) -> str:
    """One spelling for each name."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name.lower()


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    begin: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _parsed(what: str, parse: Callable[[], _T]) -> _T:
    """The parsers raise nearly anything over a stranger's bytes, and some quote them."""
    try:
        return parse()
    except Exception:  # noqa: BLE001
        raise PairError(f"{what} cannot be read") from None


def _certificates(what: str, pem: bytes) -> list[x509.Certificate]:
    return _parsed(what, lambda: x509.load_pem_x509_certificates(pem))


def _names(leaf: x509.Certificate) -> frozenset[str]:
    try:
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    addresses = found.get_values_for_type(x509.IPAddress)
    return frozenset(map(_plain, [*found.get_values_for_type(x509.DNSName), *map(str, addresses)]))


def _signer(leaf: x509.Certificate, authorities: bytes) -> Authority:
    for candidate in _certificates("ca.crt", authorities):
        try:
            leaf.verify_directly_issued_by(candidate)
        except Exception:  # noqa: BLE001, S112  # nosec B112
            continue  # another name, key or kind of signature
        return Authority(_pem(candidate), candidate.not_valid_after_utc)
    raise PairError("ca.crt did not sign tls.crt")
