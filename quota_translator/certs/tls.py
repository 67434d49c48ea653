"""A pair at work: how long it may be served, and the TLS context that exchanges it in operation."""

import os
import ssl
from collections.abc import Callable, Iterable

import msgspec

from quota_translator.certs.pairs import LONGEST, SKEW, Pair, PairError, issue
from quota_translator.core.world import Clock


class Held(msgspec.Struct, frozen=True):
    """A pair that OpenSSL accepted, and when this process first had it.

    A certificate's life is a matter of the wall clock; that it was set back must not prolong it, so
    the steady one is asked as well. What the steady clock sleeps through, the wall clock shows.
    """

    pair: Pair
    context: ssl.SSLContext
    since: Clock

    def left(self, clock: Clock) -> float:
        """Seconds until it expires, by the clock that says less."""
        by_wall = (self.pair.not_after - clock.wall).total_seconds()
        when_seen = (self.pair.not_after - self.since.wall).total_seconds()
        return min(by_wall, when_seen - (clock.steady - self.since.steady))

    def due_in(self, clock: Clock) -> float:
        """Seconds until two thirds of its life are over."""
        life = self.pair.not_after - self.pair.not_before - SKEW
        return self.left(clock) - life.total_seconds() / 3

    def fault(self, clock: Clock) -> str:
        """Why it may not be served now; "" when it may."""
        if self.left(clock) <= 0:
            return f"expired at {self.pair.not_after:%Y-%m-%dT%H:%M:%SZ}"
        if self.pair.not_before > clock.wall:
            return f"is not valid before {self.pair.not_before:%Y-%m-%dT%H:%M:%SZ}"
        return ""


class Served:
    """The TLS side of a server whose pair may be exchanged at any time.

    Each handshake takes the context of the pair of that moment. Loading a pair into a context in
    use would keep an older one of another key type beside it, and a pair that does not fit would
    leave the server with none. Without a pair, or with an expired one, handshakes are refused.
    """

    def __init__(self, now: Callable[[], Clock]) -> None:
        self._now = now
        self.held: Held | None = None
        self.context = _empty_context()
        self.context.sni_callback = self._choose  # called without a server name, too

    def _choose(
        self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> int | None:
        if self.held is None or self.held.left(self._now()) <= 0:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self.held.context
        return None


def hold(pair: Pair, clock: Clock) -> Held:
    """Make a pair ready to be served. Raises PairError where OpenSSL does not take it."""
    context = _empty_context()
    # From memory: the file system is read-only, and no key should be on one. OpenSSL takes a path.
    file = os.memfd_create("pair", os.MFD_CLOEXEC)
    try:
        with os.fdopen(file, "wb", closefd=False) as writing:
            writing.write(pair.chain + b"\n" + pair.key)
        context.load_cert_chain(f"/proc/self/fd/{file}", password=b"")  # never ask on a terminal
    except ssl.SSLError as error:
        raise PairError(f"OpenSSL does not take the pair: {error.reason}") from None
    finally:
        os.close(file)
    return Held(pair, context, clock)


def unvouched(names: Iterable[str], clock: Clock) -> ssl.SSLContext:
    """Of a certificate that is made here, for a year, and that nobody can check: it only keeps
    what is sent from being read."""
    return hold(issue(names, LONGEST.total_seconds(), clock.wall), clock).context


def _empty_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
