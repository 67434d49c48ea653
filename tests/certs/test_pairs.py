"""Pairs as they are made, and pairs as strangers write them."""

import re
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from quota_translator.certs.pairs import (
    LONGEST,
    SKEW,
    Pair,
    PairError,
    issue,
    names_for,
    read_authorities,
    read_pair,
)
from quota_translator.certs.tls import Held, hold
from quota_translator.core.world import Clock
from tests.certs.server import DAY, handshake

WALL = datetime(2026, 1, 1, 12, tzinfo=UTC)
CLOCK = Clock(WALL, 0.0)
NAMES = names_for("guard", "quota", ("Example.org", "127.0.0.1", "::1"))
PAIR = issue(NAMES, 90 * DAY, WALL)
OTHER = issue(NAMES, 90 * DAY, WALL)


def leaf(pair: Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.chain)


def test_the_names_of_a_service_and_those_that_were_asked_for() -> None:
    own = ("guard", "guard.quota", "guard.quota.svc", "guard.quota.svc.cluster.local")
    assert list(NAMES) == [*own, "example.org", "127.0.0.1", "::1"]


@pytest.mark.parametrize("name", NAMES)
def test_a_client_that_trusts_the_authority_accepts_every_name(name: str) -> None:
    assert handshake(hold(PAIR, CLOCK).context, PAIR.authority, name) == leaf(PAIR)


@pytest.mark.parametrize(("name", "trusted"), [("other", PAIR), ("guard", OTHER)])
def test_a_client_accepts_no_other_name_and_no_other_authority(name: str, trusted: Pair) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(hold(PAIR, CLOCK).context, trusted.authority, name)


def test_what_is_in_a_certificate() -> None:
    found, authority = leaf(PAIR), x509.load_pem_x509_certificate(PAIR.authority)
    for certificate in (found, authority):
        key = certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert isinstance(key.curve, ec.SECP256R1)
        assert certificate.not_valid_before_utc == WALL - SKEW
        assert certificate.not_valid_after_utc == WALL + timedelta(days=90)
    usages = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.SERVER_AUTH]
    basics = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (basics.critical, basics.value.ca, basics.value.path_length) == (True, True, 0)
    found.verify_directly_issued_by(authority)


def test_no_certificate_and_no_authority_lives_longer_than_a_year() -> None:
    pair = issue(NAMES, 1000 * DAY, WALL)
    (authority,) = read_authorities(pair.authority)
    assert pair.not_after - pair.not_before == LONGEST
    assert authority.not_after == pair.not_after


def test_what_was_made_is_read_as_it_was_made() -> None:
    assert read_pair(PAIR.chain, PAIR.key, PAIR.authority) == PAIR
    assert read_pair(PAIR.chain, PAIR.key).authority == b""


def test_the_signer_is_found_among_several() -> None:
    assert read_pair(PAIR.chain, PAIR.key, OTHER.authority + PAIR.authority) == PAIR


def encrypted(pair: Pair) -> bytes:
    return serialization.load_pem_private_key(pair.key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"x"),
    )


@pytest.mark.parametrize(
    ("chain", "key", "authority", "message"),
    [
        (PAIR.chain, OTHER.key, PAIR.authority, "tls.key is not the key of tls.crt"),
        (PAIR.chain, PAIR.key, OTHER.authority, "ca.crt did not sign tls.crt"),
        (b"", PAIR.key, PAIR.authority, "tls.crt cannot be read"),
        (PAIR.chain[:200], PAIR.key, PAIR.authority, "tls.crt cannot be read"),
        (PAIR.chain, b"", PAIR.authority, "tls.key cannot be read"),
        (PAIR.chain, encrypted(PAIR), PAIR.authority, "tls.key cannot be read"),
        (PAIR.chain, PAIR.key, b"", "ca.crt cannot be read"),
        (PAIR.key, PAIR.key, PAIR.authority, "tls.crt cannot be read"),
    ],
)
def test_what_is_no_pair(chain: bytes, key: bytes, authority: bytes, message: str) -> None:
    with pytest.raises(PairError, match=f"^{message}$"):
        read_pair(chain, key, authority)


def test_a_certificate_without_names_bears_none() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([])
    bare = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(WALL)
        .not_valid_after(WALL + timedelta(days=1))
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    assert read_pair(bare, private, bare).lacks(["guard"]) == ["guard"]


def test_a_wildcard_bears_the_names_one_level_below() -> None:
    pair = issue(("*.quota.svc",), DAY, WALL)
    assert pair.lacks(["guard.quota.svc", "GUARD.quota.svc"]) == []
    assert pair.lacks(["quota.svc", "a.guard.quota.svc"]) == ["quota.svc", "a.guard.quota.svc"]


def test_the_key_is_shown_nowhere() -> None:
    held = hold(PAIR, CLOCK)
    for shown in (repr(PAIR), str(PAIR), repr(held)):
        assert "PRIVATE" not in shown
        assert "BEGIN" not in shown
        assert "guard.quota.svc" in shown


@st.composite
def damaged(draw: st.DrawFn) -> tuple[bytes, bytes, bytes]:
    """The three texts of a pair, one of them with bytes put in, taken out or exchanged."""
    texts = [PAIR.chain, PAIR.key, PAIR.authority]
    which = draw(st.integers(0, 2))
    start = draw(st.integers(0, len(texts[which])))
    end = draw(st.integers(start, min(start + 40, len(texts[which]))))
    texts[which] = texts[which][:start] + draw(st.binary(max_size=40)) + texts[which][end:]
    return texts[0], texts[1], texts[2]


@given(damaged())
def test_a_damaged_pair_is_refused_in_one_line_or_is_still_good(
    texts: tuple[bytes, bytes, bytes],
) -> None:
    refused = None
    try:
        assert isinstance(hold(read_pair(*texts), CLOCK), Held)
    except PairError as error:
        refused = error
    if refused is not None:
        assert re.fullmatch(r"[ -~]{1,100}", str(refused))
        assert refused.__suppress_context__


@given(st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=300))
def test_noise_is_no_pair(chain: bytes, key: bytes, authority: bytes) -> None:
    with pytest.raises(PairError):
        read_pair(chain, key, authority)
