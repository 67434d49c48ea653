"""One Lease: read, taken when it is free, renewed, and given back.

No clock of another machine is believed. The times inside a Lease are for people; whether its holder
has gone is judged by how long *this* process has seen it unchanged, as client-go does, so that
clocks may differ by hours. Each write names the version that it follows from, so of two who take a
free Lease one succeeds.
"""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from quota_translator.errors import Conflict, Malformed, NotFound
from quota_translator.kube.client import Client
from quota_translator.kube.resources import LEASES

MOST_SECONDS: Final = 5.0  # for one call: a connection that hangs must leave time for another try
LONGEST_SECONDS: Final = 600  # what a Lease may ask others to wait; more is a mistake of somebody
_MOST_TRANSITIONS: Final = 2**31 - 1  # the API's field has 32 bits, and people can write it
_LEAST_SECONDS: Final = 0.05


class LeaseRecord(msgspec.Struct, frozen=True):
    """What a Lease says. `holder` "": nobody holds it."""

    holder: str = ""
    duration: float = 0.0  # seconds
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


class LeaseLock:
    """One Lease as one process sees it. `steady` is in seconds; `wall` for what people read.

    `duration` (seconds) is how long the others wait after our last renewal. Every method that asks
    the server takes `until`, the steady moment by which the answer must be there, and raises
    ApiError when it is not.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        duration: float,
        *,
        steady: Callable[[], float],
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.identity, self.namespace, self.name = identity, namespace, name
        self.record: LeaseRecord | None = None  # as last seen; None: never
        self.uid = ""
        # The steady moment just before our last write that succeeded was sent: our time counts
        # from here, and that of whoever sees the write begins later.
        self.confirmed_at = float("-inf")
        self._client = client
        self._duration = math.ceil(duration)
        self._steady, self._wall = steady, wall
        self._version = ""  # "": it is not there
        self._changed_at = float("-inf")  # steady: when we saw what the record says now

    # --- what is known --------------------------------------------------------------------

    @property
    def holder(self) -> str:
        return self.record.holder if self.record else ""

    @property
    def is_ours(self) -> bool:
        """Whether it is there and names us, as it was last seen."""
        return bool(self._version) and self.holder == self.identity

    @property
    def transitions(self) -> int:
        """How often the Lease went from one holder to another."""
        return self.record.transitions if self.record else 0

    def free_in(self) -> float:
        """Seconds until it may be taken, if its holder does not renew it; 0: now.

        The time of a Lease that somebody deletes goes on: its holder may not know yet.
        """
        if self.record is None or self.record.holder in ("", self.identity):
            return 0.0
        return max(0.0, self._changed_at + self.record.duration - self._steady())

    # --- asking ---------------------------------------------------------------------------

    async def take(self, until: float) -> bool:
        """Look, and take it if it is free. False: another has it."""
        await self._look(until)
        return self.free_in() <= 0 and await self._write(self._held(), until)

    async def renew(self, until: float) -> bool:
        """One request, unless somebody touched the Lease. False: another has it."""
        if await self._write(self._held(), until):
            return True
        await self._look(until)
        is_ours = self.holder in ("", self.identity)
        return is_ours and await self._write(self._held(), until)

    async def release(self, until: float) -> bool:
        """Give it back, so that nobody waits. False: it is not ours any more; or (`is_ours`) it is,
        and somebody else wrote it again and again."""
        if not self.is_ours:
            return False
        if await self._write(self._freed(), until):
            return True
        # A renewal whose answer never came may have been done: then it is ours in another version.
        await self._look(until)
        return self.is_ours and await self._write(self._freed(), until)

    # --- inside ---------------------------------------------------------------------------

    def _freed(self) -> LeaseRecord:
        now = self._moment()
        return LeaseRecord("", 1.0, now, now, self.transitions)

    def _held(self) -> LeaseRecord:
        now, seen = self._moment(), self.record
        if seen is None:
            return LeaseRecord(self.identity, self._duration, now, now)
        if seen.holder == self.identity:
            return LeaseRecord(
                self.identity, self._duration, seen.acquired or now, now, seen.transitions
            )
        transitions = min(seen.transitions + 1, _MOST_TRANSITIONS)
        return LeaseRecord(self.identity, self._duration, now, now, transitions)

    async def _look(self, until: float) -> None:
        try:
            body = await self._client.get(LEASES, self.name, self.namespace, self._left(until))
        except NotFound:
            self._version = ""
            return
        self._take_in(body)

    async def _write(self, record: LeaseRecord, until: float) -> bool:
        """False: the Lease is not as it was last seen."""
        sent_at, seconds = self._steady(), self._left(until)
        try:
            if self._version:
                metadata = {"resourceVersion": self._version, "uid": self.uid}
                patch = {"metadata": metadata, "spec": _spec(record)}
                body = await self._client.merge_patch(
                    LEASES, self.name, patch, self.namespace, seconds=seconds
                )
            else:
                body = await self._client.create(LEASES, self._body(record), seconds)
        except Conflict:
            return False
        except NotFound:
            if not self._version:
                raise  # the namespace is not there
            self._version = ""
            return False
        self._take_in(body)
        self.confirmed_at = sent_at
        return True

    def _take_in(self, body: bytes) -> None:
        try:
            found = msgspec.json.decode(body, type=_Lease)
        except msgspec.DecodeError as error:
            raise Malformed(f"unreadable Lease {self.namespace}/{self.name}: {error}") from error
        spec = found.spec
        record = LeaseRecord(
            spec.holder_identity or "",
            float(min(spec.lease_duration_seconds or self._duration, LONGEST_SECONDS)),
            spec.acquire_time or "",
            spec.renew_time or "",
            spec.lease_transitions or 0,
        )
        if record != self.record:
            self._changed_at = self._steady()
        self.record = record
        self._version, self.uid = found.metadata.resource_version, found.metadata.uid

    def _left(self, until: float) -> float:
        return max(_LEAST_SECONDS, min(until - self._steady(), MOST_SECONDS))

    def _moment(self) -> str:
        """Such as 2026-11-30T09:41:12.000123Z: a MicroTime, always with its six digits."""
        now = self._wall().astimezone(UTC)
        return f"{now:%Y-%m-%dT%H:%M:%S.%f}Z"

    def _body(self, record: LeaseRecord) -> dict[str, Any]:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": _spec(record),
        }


def _spec(record: LeaseRecord) -> dict[str, Any]:
    return {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": int(record.duration),
        "acquireTime": record.acquired,
        "renewTime": record.renewed,
        "leaseTransitions": record.transitions,
    }
