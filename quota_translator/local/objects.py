"""One object of a file: of what kind it is, whether the API server would take it, its record.

What the server would refuse to store is raised as `RefusedError`, with a line for each reason. What
it would store, though the tree's rules forbid it, is left to `check`, which knows the rules.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from quota_translator.core.names import (
    API_VERSION,
    CLUSTER_QUEUE,
    COHORT,
    GROUP,
    KINDS,
    KUEUE_API_VERSION,
    KUEUE_GROUP,
    LOCAL_QUEUE,
    OME_API_VERSION,
    QUOTA_KIND,
    RESOURCE_FLAVOR,
    Kind,
)
from quota_translator.core.reading import read_quota
from quota_translator.core.wire import (
    WireFlavor,
    WireKueue,
    WireNamespace,
    WireNode,
    to_flavor,
    to_namespace,
    to_node,
    to_observed,
)
from quota_translator.core.world import Flavor, Namespace, Node, Observed, QuotaNode
from quota_translator.local.items import Item, say
from quota_translator.local.quota_file import faults_of

NODE: Final = "Node"
NAMESPACE: Final = "Namespace"
UNTYPED: Final = "document without kind and apiVersion"
VERSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    NODE: ("v1",),
    NAMESPACE: ("v1",),
    QUOTA_KIND: (API_VERSION, OME_API_VERSION),
    RESOURCE_FLAVOR: (KUEUE_API_VERSION,),
    COHORT: (KUEUE_API_VERSION,),
    CLUSTER_QUEUE: (KUEUE_API_VERSION,),
    LOCAL_QUEUE: (KUEUE_API_VERSION,),
}
# Maps of text whose values people forget to quote, by where they stand.
_TEXT_MAPS: Final = (("metadata", "labels"), ("metadata", "annotations"), ("spec", "nodeLabels"))


class RefusedError(Exception):
    """An object that the API server would refuse: (line, message) for each reason."""

    def __init__(self, *faults: tuple[int, str]) -> None:
        super().__init__(faults)
        self.faults = faults


class Entry(msgspec.Struct, frozen=True, eq=False):
    """One object that this program reads: which, where, and its record(s)."""

    kind: str
    namespace: str
    name: str
    file: str
    item: Item
    quota: QuotaNode | None = None
    node: Node | None = None
    space: Namespace | None = None
    flavor: Flavor | None = None
    live: Observed | None = None

    @property
    def source(self) -> str:
        return f"{self.file}:{self.item.line}"

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {where}{self.name}"


def to_entry(kind: str, item: Item, file: str) -> Entry:
    """The object of a kind in VERSIONS with its record. Raises RefusedError."""
    name, namespace = _identity(kind, item)
    _check_text_maps(kind, name, item)
    entry = Entry(kind, namespace, name, file, item)
    if kind == QUOTA_KIND:
        faults = [(line, f"{entry}: {message}") for line, message in faults_of(item)]
        if faults:
            raise RefusedError(*faults)
        return msgspec.structs.replace(entry, quota=read_quota(item.value, entry.source))
    try:
        records = _records(kind, item.value, namespace)
    except msgspec.ValidationError as error:
        path = str(error).partition("`$.")[2].rstrip("`").replace("[...]", "")
        raise RefusedError((item.line_at(path), f"{kind} {name}: {error}")) from error
    # Only the tree's own objects are asked for lines later: let the text of the others go.
    return msgspec.structs.replace(entry, item=_without_text(item), **records)


def kind_of(item: Item) -> str:
    """The kind, or why it is a mistake. What this program does not read comes back as it is."""
    raw = item.value
    if not isinstance(raw, dict):
        raise RefusedError((item.line, f"an object was expected here, and found {say(raw)}"))
    kind, version = raw.get("kind"), raw.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str):
        return UNTYPED
    group = version.rpartition("/")[0]
    wanted = VERSIONS.get(kind, ())
    if version in wanted:
        return kind
    if wanted and _is_meant(kind, group):
        message = f"{kind} of apiVersion {version} is not read: write {wanted[0]}"
        raise RefusedError((item.line_at("apiVersion"), message))
    if group == GROUP:
        message = f"{version} has no kind {kind}: write {QUOTA_KIND}"
        raise RefusedError((item.line_at("kind"), message))
    return f"{version} {kind}" if wanted else kind


def _is_meant(kind: str, group: str) -> bool:
    """Whether an object of a kind of ours and of that API group was meant for this program."""
    if kind == QUOTA_KIND:
        return True
    return group == (KUEUE_GROUP if kind in KINDS else "")


def _identity(kind: str, item: Item) -> tuple[str, str]:
    metadata = item.value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        said = "is missing" if name in (None, "") else f"is {say(name)}, not text: quote it"
        raise RefusedError((item.line_at("metadata.name"), f"{kind}: metadata.name {said}"))
    if kind != LOCAL_QUEUE:
        return name, ""
    namespace = metadata.get("namespace") or "default"
    return name, str(namespace)


def _check_text_maps(kind: str, name: str, item: Item) -> None:
    for outer, inner in _TEXT_MAPS:
        around = item.value.get(outer)
        found = around.get(inner) if isinstance(around, dict) else None
        for key, value in found.items() if isinstance(found, dict) else ():
            if not isinstance(value, str):
                line = item.line_of_steps((outer, inner, key))
                message = f"{kind} {name}: {outer}.{inner}[{key}] is {say(value)}, not text"
                raise RefusedError((line, f"{message}: put it in quotes"))


def _records(kind: str, raw: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """The record(s) of an object. Raises msgspec.ValidationError."""
    if kind == NODE:
        return {"node": to_node(msgspec.convert(raw, WireNode))}
    if kind == NAMESPACE:
        return {"space": to_namespace(msgspec.convert(raw, WireNamespace))}
    made: dict[str, Any] = {}
    if kind == RESOURCE_FLAVOR:
        made["flavor"] = to_flavor(msgspec.convert(raw, WireFlavor))
    wire = msgspec.convert(raw, WireKueue)
    if namespace:
        wire.metadata.namespace = namespace
    live_kind: Kind = next(known for known in KINDS if known == kind)
    return made | {"live": to_observed(live_kind, wire)}


def _without_text(item: Item) -> Item:
    line = item.line
    return Item(None, line, lambda _: line, lambda _: None)
