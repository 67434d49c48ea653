"""From bytes to records: one description per kind, typed and partial.

A list is decoded item by item and page by page, so that memory stays at the size of a page and the
event loop is never held for long. One item that cannot be read spoils the whole list: leaving it
out would look as if it did not exist.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from quota_translator.core import reading, wire
from quota_translator.core.names import KINDS, RESOURCE_FLAVOR, Key, Kind
from quota_translator.core.world import Flavor, Namespace, Node, Observed, QuotaNode
from quota_translator.errors import Malformed
from quota_translator.kube.resources import KUEUE, NAMESPACES, NODES, QUOTAS, Resource

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")
W = TypeVar("W")
Payload = bytes | msgspec.Raw
# 100 nodes of 8 KB take 3 to 15 ms; the event loop must not be held over 50 ms.
SLICE: Final = 100


class Watched(msgspec.Struct, Generic[K, R], frozen=True):
    """One kind as it is followed: how to read it, what it is called, which version it has.

    `version` gives "" for records that do not keep theirs. `query` narrows what is asked for, as a
    fieldSelector does.
    """

    resource: Resource
    read: Callable[[Payload], R]
    key: Callable[[R], K]
    version: Callable[[R], str] = lambda _record: ""
    query: Mapping[str, str] = {}


class FlavorRecord(msgspec.Struct, frozen=True):
    """A ResourceFlavor twice: as hardware is measured by it, and as an object that may be ours."""

    flavor: Flavor
    observed: Observed


class Page(msgspec.Struct, frozen=True):
    """The frame of a list: its items are still bytes."""

    items: tuple[msgspec.Raw, ...]
    version: str
    token: str  # metadata.continue: "" on the last page


class Event(msgspec.Struct, frozen=True):
    """One line of a watch. `version` is the object's resourceVersion, "" when it has none."""

    type: str
    object: msgspec.Raw
    version: str


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    token: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _ObjectMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Object(msgspec.Struct):
    metadata: _ObjectMeta = msgspec.field(default_factory=_ObjectMeta)


class _Kind(msgspec.Struct):
    kind: str = ""


_read_kind: Final = msgspec.json.Decoder(_Kind).decode
_read_list: Final = msgspec.json.Decoder(_List).decode
_read_event: Final = msgspec.json.Decoder(_Event).decode
_read_object: Final = msgspec.json.Decoder(_Object).decode


def read_page(body: bytes) -> Page:
    """Raises Malformed when the body is not a list of the API."""
    try:
        found = _read_list(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"unreadable list: {error}") from error
    return Page(tuple(found.items or ()), found.metadata.resource_version, found.metadata.token)


def read_event(line: bytes) -> Event:
    """Raises Malformed when the line is not an event (HTML, half a line, another document)."""
    try:
        found = _read_event(line)
        version = _read_object(found.object).metadata.resource_version
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"unreadable watch line: {error}") from error
    return Event(found.type, found.object, version)


def is_status(body: bytes) -> bool:
    """Whether an answer is the server's own Status (a delete that is done), not an object."""
    try:
        return _read_kind(body).kind == "Status"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"unreadable answer: {error}") from error


async def read_items(watched: Watched[K, R], page: Page) -> list[R]:
    """The records of a page; the event loop runs in between."""
    records: list[R] = []
    for start in range(0, len(page.items), SLICE):
        records += [watched.read(item) for item in page.items[start : start + SLICE]]
        await asyncio.sleep(0)
    return records


def _reader(kind: str, struct: type[W], to_record: Callable[[W], R]) -> Callable[[Payload], R]:
    decode = msgspec.json.Decoder(struct).decode

    def read(payload: Payload) -> R:
        try:
            return to_record(decode(payload))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Malformed(f"unreadable {kind}{_named(payload)}: {error}") from error

    return read


def _named(payload: Payload) -> str:
    try:
        return f" {msgspec.json.decode(payload, type=wire.WireNamespace).metadata.name}"
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def _observed(kind: Kind) -> Callable[[wire.WireKueue], Observed]:
    return lambda found: wire.to_observed(kind, found)


read_node: Final = _reader("Node", wire.WireNode, wire.to_node)
read_namespace: Final = _reader("Namespace", wire.WireNamespace, wire.to_namespace)
read_flavor: Final = _reader(RESOURCE_FLAVOR, wire.WireFlavor, wire.to_flavor)
read_observed: Final[dict[Kind, Callable[[Payload], Observed]]] = {
    kind: _reader(kind, wire.WireKueue, _observed(kind)) for kind in KINDS
}


def read_flavor_record(payload: Payload) -> FlavorRecord:
    return FlavorRecord(read_flavor(payload), read_observed[RESOURCE_FLAVOR](payload))


def read_quota(payload: Payload) -> QuotaNode:
    try:
        raw: dict[str, Any] = msgspec.json.decode(payload, type=dict)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"unreadable {QUOTAS.kind}: {error}") from error
    return reading.read_quota(raw)


WATCHED_QUOTAS: Final = Watched[str, QuotaNode](
    QUOTAS, read_quota, lambda quota: quota.name, lambda quota: quota.resource_version
)
WATCHED_NODES: Final = Watched[str, Node](NODES, read_node, lambda node: node.name)
WATCHED_NAMESPACES: Final = Watched[str, Namespace](
    NAMESPACES, read_namespace, lambda namespace: namespace.name
)
WATCHED_FLAVORS: Final = Watched[Key, FlavorRecord](
    KUEUE[RESOURCE_FLAVOR],
    read_flavor_record,
    lambda record: record.observed.key,
    lambda record: record.observed.resource_version,
)


def watched_kueue(kind: Kind) -> Watched[Key, Observed]:
    """A Cohort, ClusterQueue or LocalQueue."""
    return Watched[Key, Observed](
        KUEUE[kind],
        read_observed[kind],
        lambda record: record.key,
        lambda record: record.resource_version,
    )
