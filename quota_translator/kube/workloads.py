"""Which workloads hold quota of queues that are being deleted: Kueue does not count them any more.

Workloads are the only kind that is not watched: there may be many, and few ever ask. So they are
listed, and not often.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

import msgspec
import structlog

from quota_translator.core.names import Pair
from quota_translator.core.quantity import Quantity, QuantityError
from quota_translator.core.world import Holding
from quota_translator.errors import ApiError, Malformed
from quota_translator.kube.client import Client
from quota_translator.kube.decode import read_page
from quota_translator.kube.resources import WORKLOADS

EVERY_SECONDS: Final = 5.0
MOST_PAGES: Final = 20
_TOO_MANY: Final = "too many workloads to look through"
_log = structlog.get_logger(__name__)


class _Wire(msgspec.Struct, rename="camel"):
    pass


class _Owner(_Wire):
    kind: str = ""
    name: str = ""
    controller: bool = False


class _Metadata(_Wire):
    name: str = ""
    namespace: str = ""
    creation_timestamp: str = ""
    owner_references: list[_Owner] | None = None


class _PodSet(_Wire):
    name: str = ""
    count: int = 0
    flavors: dict[str, str] | None = None
    resource_usage: dict[str, str | int] | None = None


class _Admission(_Wire):
    cluster_queue: str = ""
    pod_set_assignments: list[_PodSet] | None = None


class _Condition(_Wire):
    type: str = ""
    status: str = ""
    last_transition_time: str = ""


class _Status(_Wire):
    admission: _Admission | None = None
    conditions: list[_Condition] | None = None
    reclaimable_pods: list[_PodSet] | None = None


class _Workload(_Wire):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    status: _Status = msgspec.field(default_factory=_Status)


_read: Final = msgspec.json.Decoder(_Workload).decode


class Workloads:
    """Asks at most each `EVERY_SECONDS`; in between the last answer holds."""

    def __init__(self, client: Client, now: Callable[[], float] = time.monotonic) -> None:
        self._client, self._now = client, now
        self._asked_at = float("-inf")
        self._found: Mapping[str, tuple[Holding, ...]] = {}
        self._problem = ""

    async def of(self, queues: Collection[str]) -> Mapping[str, tuple[Holding, ...]]:
        """By queue, what holds its quota. A queue that could not be asked about is missing."""
        if not queues:
            return {}
        if self._now() - self._asked_at >= EVERY_SECONDS:
            self._asked_at = self._now()
            self._found = await self._look(queues)
        return {name: self._found[name] for name in queues if name in self._found}

    async def _look(self, queues: Collection[str]) -> Mapping[str, tuple[Holding, ...]]:
        try:
            found = await self._listed(frozenset(queues))
        except ApiError as error:
            if error.message != self._problem:
                _log.warning("workloads cannot be listed", reason=error.message)
            self._problem = error.message
            return {}
        self._problem = "" if found else self._problem
        return found

    async def _listed(self, queues: frozenset[str]) -> Mapping[str, tuple[Holding, ...]]:
        found: dict[str, list[Holding]] = {name: [] for name in queues}
        token = ""  # nosec B105 - of the next page
        for _ in range(MOST_PAGES):
            page = read_page(await self._client.list_page(WORKLOADS, token))
            for item in page.items:
                holding = read_holding(item)
                if holding is not None and holding.queue in queues:
                    found[holding.queue].append(holding)
            token = page.token
            if not token:
                return {name: tuple(holdings) for name, holdings in found.items()}
        if self._problem != _TOO_MANY:
            _log.warning(_TOO_MANY, pages=MOST_PAGES)
        self._problem = _TOO_MANY
        return {}


def read_holding(payload: bytes | msgspec.Raw) -> Holding | None:
    """None: it holds nothing. Raises Malformed."""
    try:
        found = _read(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"unreadable Workload: {error}") from error
    given = found.status.admission
    since = _reserved_since(found.status)
    if given is None or since is None:
        return None
    metadata = found.metadata
    return Holding(
        queue=given.cluster_queue,
        name=_name(metadata),
        since=since or metadata.creation_timestamp,
        amounts=_amounts(given, found.status),
    )


def _reserved_since(status: _Status) -> str | None:
    """None: it holds nothing. One that has finished keeps its reservation in its status only."""
    held = {row.type: row for row in status.conditions or () if row.status == "True"}
    if "Finished" in held or "QuotaReserved" not in held:
        return None
    return held["QuotaReserved"].last_transition_time


def _name(metadata: _Metadata) -> str:
    """What people made: a Workload that is deleted comes again, its Job does not."""
    for owner in metadata.owner_references or ():
        if owner.controller:
            return f"{owner.kind} {metadata.namespace}/{owner.name}"
    return f"Workload {metadata.namespace}/{metadata.name}"


def _amounts(given: _Admission, status: _Status) -> dict[Pair, Quantity]:
    """As Kueue charges them: without the pods that have ended already."""
    ended = {row.name: row.count for row in status.reclaimable_pods or ()}
    found: dict[Pair, Quantity] = {}
    for part in given.pod_set_assignments or ():
        for pair, amount in _of_part(part, ended.get(part.name, 0)):
            found[pair] = found[pair] + amount if pair in found else amount
    return found


def _of_part(part: _PodSet, ended: int) -> Iterator[tuple[Pair, Quantity]]:
    flavors = part.flavors or {}
    for resource, text in (part.resource_usage or {}).items():
        try:
            whole = Quantity.parse(str(text))
        except QuantityError:
            continue
        left = max(0, part.count - ended)
        share = whole.nanos * left // part.count if part.count else whole.nanos
        yield Pair(resource, flavors.get(resource, "")), Quantity(share, whole.form)
