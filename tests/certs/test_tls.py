"""A pair at work: its life by two clocks, and its exchange while handshakes go on."""

import os
import ssl
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from quota_translator.certs.pairs import Pair, PairError, issue, read_pair
from quota_translator.certs.tls import Served, hold
from tests.certs.server import DAY, Clocks, handshake

LIFE = 90 * DAY


def pair(clocks: Clocks, lifetime: float = LIFE) -> Pair:
    return issue(("guard",), lifetime, clocks.now().wall)


def rsa_pair(clocks: Clocks, bits: int = 2048) -> Pair:
    key = rsa.generate_private_key(65537, bits)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "rsa")])
    wall = clocks.now().wall
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(wall)
        .not_valid_after(wall + timedelta(days=90))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return read_pair(certificate.public_bytes(serialization.Encoding.PEM), private)


def test_it_is_due_when_two_thirds_are_over() -> None:
    clocks = Clocks()
    held = hold(pair(clocks), clocks.now())
    clocks.go_on(LIFE * 2 / 3 - 1)
    assert held.due_in(clocks.now()) == pytest.approx(1)
    assert held.fault(clocks.now()) == ""


@pytest.mark.parametrize("lifetime", [30.0, 3600.0, LIFE])
def test_the_time_before_its_making_is_no_part_of_its_life(lifetime: float) -> None:
    clocks = Clocks()
    held = hold(pair(clocks, lifetime), clocks.now())
    assert held.due_in(clocks.now()) == pytest.approx(lifetime * 2 / 3)


def test_a_clock_that_is_set_back_prolongs_nothing() -> None:
    clocks = Clocks()
    held = hold(pair(clocks), clocks.now())
    clocks.go_on(LIFE - 1)
    clocks.set_wall(-DAY)
    assert held.left(clocks.now()) == pytest.approx(1)
    clocks.go_on(1)
    assert held.fault(clocks.now()) == "expired at 2026-04-01T12:00:00Z"


def test_a_machine_that_slept_sees_that_it_expired() -> None:
    clocks = Clocks()
    held = hold(pair(clocks), clocks.now())
    clocks.set_wall(LIFE)
    assert held.left(clocks.now()) == 0
    assert held.fault(clocks.now()) != ""


def test_a_pair_of_the_future_is_at_fault() -> None:
    clocks = Clocks()
    held = hold(pair(clocks), clocks.now())
    clocks.set_wall(-299)
    assert held.fault(clocks.now()) == ""
    clocks.set_wall(-2)
    assert held.fault(clocks.now()) == "is not valid before 2026-01-01T11:55:00Z"


def test_each_handshake_gets_the_pair_of_its_moment() -> None:
    clocks = Clocks()
    served = Served(clocks.now)
    for _ in range(3):
        found = pair(clocks)
        served.held = hold(found, clocks.now())
        assert handshake(served.context, found.authority, "guard").public_bytes(
            serialization.Encoding.PEM
        ) == (found.chain)


def test_a_pair_of_another_kind_of_key_replaces_the_one_before() -> None:
    """A context into which both are loaded would go on choosing the first kind."""
    clocks = Clocks()
    served = Served(clocks.now)
    for found in (pair(clocks), rsa_pair(clocks), pair(clocks)):
        served.held = hold(found, clocks.now())
        seen = handshake(served.context).public_bytes(serialization.Encoding.PEM)
        assert seen == found.chain


def test_handshakes_are_refused_without_a_pair_and_with_an_expired_one() -> None:
    clocks = Clocks()
    served = Served(clocks.now)
    with pytest.raises(ssl.SSLError, match=r"(?i)internal error|callback failed"):
        handshake(served.context)
    served.held = hold(pair(clocks), clocks.now())
    handshake(served.context)
    clocks.go_on(LIFE)
    with pytest.raises(ssl.SSLError, match=r"(?i)internal error|callback failed"):
        handshake(served.context)


def test_nothing_below_tls_1_2() -> None:
    clocks = Clocks()
    served = Served(clocks.now)
    served.held = hold(pair(clocks), clocks.now())
    assert served.context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert served.held.context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_what_openssl_does_not_take_is_refused_before_it_serves() -> None:
    clocks = Clocks()
    weak = rsa_pair(clocks, bits=1024)
    with pytest.raises(PairError, match=r"^OpenSSL does not take the pair: EE_KEY_TOO_SMALL$"):
        hold(weak, clocks.now())


def test_no_file_stays_open() -> None:
    clocks = Clocks()
    before = len(os.listdir("/proc/self/fd"))
    held = [hold(pair(clocks), clocks.now()) for _ in range(5)]
    assert len(held) == 5
    assert len(os.listdir("/proc/self/fd")) == before
