"""A Secret that always holds a pair which may be served, whoever deletes or overwrites it.

Any number of replicas keep one Secret. A create or a change succeeds for one of them, because each
names the state that it saw; the others read what that one wrote.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec
import structlog

from quota_translator.certs.pairs import Authority, PairError, issue, read_authorities, read_pair
from quota_translator.certs.tls import Held, hold
from quota_translator.core.world import Clock
from quota_translator.errors import Conflict
from quota_translator.kube.backoff import Pacer
from quota_translator.kube.client import Client
from quota_translator.kube.named import Named
from quota_translator.kube.resources import SECRETS
from quota_translator.kube.secrets import SecretRecord, change_secret, create_secret, read_secret

_log = structlog.get_logger(__name__)
CHAIN: Final = "tls.crt"
KEY: Final = "tls.key"
AUTHORITY: Final = "ca.crt"
PREVIOUS: Final = "previous-ca.crt"  # what signed pairs that some replica may still serve
MOST_PREVIOUS: Final = 4
MOST_NAMES: Final = 64
# Replicas whose clocks are further apart than a certificate lives must not become a storm.
PAIRS_A_MINUTE: Final = 6
PAIRS_AN_HOUR: Final = 20


class Stored(msgspec.Struct, frozen=True):
    """A pair that may be served. `bundle` is what clients must trust: the pair's authority and
    those before it. Nothing but the Secret decides it, so that all replicas agree."""

    held: Held
    bundle: bytes


class SecretKeeper:
    """Keeps one Secret. `changed` is called when another look (`keep`) is worth it."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        names: Sequence[str],
        lifetime: float,
        changed: Callable[[], None],
        *,
        now: Callable[[], Clock],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rand: Callable[[], float] = random.random,
    ) -> None:
        """The pair shall bear `names` and live for `lifetime` seconds."""
        self.stored: Stored | None = None  # None: the Secret holds nothing that may be served
        self.named = Named[SecretRecord](
            client,
            msgspec.structs.replace(SECRETS, within=namespace),
            name,
            read_secret,
            lambda record: record.version,
            changed,
            now=lambda: now().steady,
            sleep=sleep,
            rand=rand,
        )
        self._client, self._namespace, self._name = client, namespace, name
        self._names, self._lifetime, self._now = names, lifetime, now
        self._inherited: frozenset[str] = frozenset()
        hourly = max(PAIRS_AN_HOUR, math.ceil(3 * 3600 / lifetime))
        self._paces = [
            Pacer(lambda: now().steady, most=PAIRS_A_MINUTE),
            Pacer(lambda: now().steady, most=hourly, within=3600),
        ]

    async def keep(self, served: Held | None) -> None:
        """Look, and replace what is not good. `served` is the pair in service: its authority goes
        on being trusted. Raises ApiError."""
        why = self._judge(served)
        if why and all(pace.wait() <= 0 for pace in self._paces):
            await self._replace(why, served)
            self._judge(served)
        elif not why:
            await self._prune()

    # --- judging --------------------------------------------------------------------------

    def _judge(self, served: Held | None) -> str:
        """Set `stored`. Returns why a new pair is needed, "" if it is not."""
        before, self.stored, self._inherited = self.stored, None, frozenset()
        record, clock = self.named.record, self._now()
        if record is None:
            return "there is no Secret"
        try:
            found = _read(record, (served, before.held if before else None), clock)
        except PairError as error:
            return str(error)
        held = found.held
        if fault := held.fault(clock):
            return f"the certificate {fault}"
        if lacking := held.pair.lacks(self._names):
            self._inherited = held.pair.names
            return f"the certificate does not bear the name {lacking[0]}"
        self.stored = found
        return "two thirds of its life are over" if held.due_in(clock) <= 0 else ""

    # --- writing --------------------------------------------------------------------------

    async def _replace(self, why: str, served: Held | None) -> None:
        record, clock = self.named.record, self._now()
        pair = issue(self._wanted_names(), self._lifetime, clock.wall)
        trusted = [served.pair.authority] if served else []
        if record is not None:
            trusted += [record.data.get(AUTHORITY, b""), record.data.get(PREVIOUS, b"")]
        data = {
            CHAIN: pair.chain,
            KEY: pair.key,
            AUTHORITY: pair.authority,
            PREVIOUS: unexpired(trusted, clock),
        }
        if await self._write(record, data):
            for pace in self._paces:
                pace.note()
            expires = pair.not_after.isoformat()
            _log.info("made a certificate", object=self.named.title, reason=why, expires=expires)

    def _wanted_names(self) -> tuple[str, ...]:
        """While one version replaces another, each may want its own names: neither takes away the
        other's, or the two would replace the pair in turns. Renewal leaves out what is left over.
        """
        both = tuple(dict.fromkeys((*self._names, *sorted(self._inherited))))
        return both if len(both) <= MOST_NAMES else tuple(self._names)

    async def _prune(self) -> None:
        """Take out authorities that have expired: nobody can serve what they signed any more."""
        record = self.named.record
        assert record is not None
        found = record.data.get(PREVIOUS, b"")
        alive = unexpired([found], self._now())
        if alive != found and await self._write(record, {PREVIOUS: alive}):
            self._judge(None)

    async def _write(self, record: SecretRecord | None, data: dict[str, bytes]) -> bool:
        """False: the Secret is not as it was seen any more, and has been read again."""
        client = self._client
        try:
            if record is None:
                filled = {name: value for name, value in data.items() if value}
                body = await create_secret(client, self._namespace, self._name, filled)
            else:
                keys = {name: value or None for name, value in data.items()}
                body = await change_secret(client, record, keys)
        except Conflict:
            await self.named.ask()
            return False
        self.named.take(body)
        return True


def _read(record: SecretRecord, known: Sequence[Held | None], clock: Clock) -> Stored:
    """Raises PairError. A pair that is `known` keeps the moment at which it was first seen."""
    data = record.data
    pair = read_pair(data.get(CHAIN, b""), data.get(KEY, b""), data.get(AUTHORITY, b""))
    held = next((held for held in known if held and held.pair == pair), None)
    previous = (authority.pem for authority in _authorities(data.get(PREVIOUS, b"")))
    return Stored(held or hold(pair, clock), b"".join((pair.authority, *previous)))


def unexpired(bundles: Sequence[bytes], clock: Clock) -> bytes:
    """The authorities in these bundles that may still be needed, the newest few, as one bundle."""
    found = [authority for bundle in bundles for authority in _authorities(bundle)]
    alive = dict.fromkeys(one.pem for one in found if one.not_after > clock.wall)
    return b"".join(list(alive)[:MOST_PREVIOUS])


def _authorities(bundle: bytes) -> tuple[Authority, ...]:
    """None of a bundle that is empty, or that a stranger filled with something else."""
    try:
        return read_authorities(bundle)
    except PairError:
        return ()
