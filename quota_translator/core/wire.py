"""From the API's JSON to records: typed, partial, tolerant.

Only the fields that the records need are declared, so a decoder skips the rest without building it
(60 to 100 times cheaper than full models), and fields that a newer server adds do no harm. The same
structs read bytes (`kube/`) and dicts (`local/`); `to_record` turns one into its record.
"""

import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from quota_translator.core.kueue import stated
from quota_translator.core.names import (
    CLUSTER_QUEUE,
    LABEL_MANAGED_BY,
    LABEL_PART,
    LABEL_QUOTA,
    LOCAL_QUEUE,
    Key,
    Kind,
    Pair,
)
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.world import Amount, Flavor, Namespace, Node, Observed


class Wire(msgspec.Struct, rename="camel"):
    """Base of the partial structs: camelCase on the wire, unknown fields skipped."""


class ManagedFields(Wire):
    manager: str = ""
    operation: str = ""
    subresource: str = ""
    time: str | None = None


class Metadata(Wire):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None
    managed_fields: list[ManagedFields] | None = None


class Condition(Wire):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0


class NodeMetadata(Wire):
    """Node metadata without annotations and managed fields, which are most of its bytes."""

    name: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None


class NodeSpec(Wire):
    unschedulable: bool = False


class NodeCondition(Wire):
    type: str = ""
    status: str = ""


class NodeStatus(Wire):
    # Amounts of any type, so that one unreadable amount costs that amount and not the node list.
    capacity: dict[str, Any] | None = None
    allocatable: dict[str, Any] | None = None
    conditions: list[NodeCondition] | None = None


class WireNode(Wire):
    metadata: NodeMetadata
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class NamespaceStatus(Wire):
    phase: str = ""


class WireNamespace(Wire):
    metadata: Metadata
    status: NamespaceStatus | None = None


class FlavorSpec(Wire):
    node_labels: dict[str, str] | None = None
    node_taints: list[Any] | None = None
    tolerations: list[Any] | None = None
    topology_name: str | None = None


class WireFlavor(Wire):
    metadata: Metadata
    spec: FlavorSpec | None = None


class UsedResource(Wire):
    name: str = ""
    total: str | int = "0"
    borrowed: str | int = "0"


class UsedFlavor(Wire):
    name: str = ""
    resources: list[UsedResource] | None = None


class QueueStatus(Wire):
    conditions: list[Condition] | None = None
    flavors_usage: list[UsedFlavor] | None = None
    flavors_reservation: list[UsedFlavor] | None = None
    reserving_workloads: int = 0
    pending_workloads: int = 0
    admitted_workloads: int = 0


class WireKueue(Wire):
    """Cohort, ClusterQueue, LocalQueue or (as an object of ours) ResourceFlavor."""

    metadata: Metadata
    spec: dict[str, Any] | None = None
    status: QueueStatus | None = None


def to_node(wire: WireNode) -> Node:
    status = wire.status or NodeStatus()
    conditions = status.conditions or []
    return Node(
        name=wire.metadata.name,
        labels=_interned(wire.metadata.labels),
        capacity=_extended(status.capacity),
        allocatable=_extended(status.allocatable),
        cordoned=wire.spec is not None and wire.spec.unschedulable,
        ready=any(c.type == "Ready" and c.status == "True" for c in conditions),
    )


def to_namespace(wire: WireNamespace) -> Namespace:
    metadata = wire.metadata
    phase = wire.status.phase if wire.status else ""
    terminating = metadata.deletion_timestamp is not None or phase == "Terminating"
    return Namespace(metadata.name, _interned(metadata.labels), terminating)


def to_flavor(wire: WireFlavor) -> Flavor:
    spec = wire.spec or FlavorSpec()
    return Flavor(
        name=wire.metadata.name,
        uid=wire.metadata.uid,
        node_labels=_interned(spec.node_labels),
        topology=spec.topology_name or "",
        taints=len(spec.node_taints or []),
        tolerations=len(spec.tolerations or []),
        deleting=wire.metadata.deletion_timestamp is not None,
    )


def to_observed(kind: Kind, wire: WireKueue) -> Observed:
    metadata, spec, status = wire.metadata, wire.spec or {}, wire.status
    labels = metadata.labels or {}
    active = _condition(status, "Active")
    is_queue = kind == CLUSTER_QUEUE
    return Observed(
        key=Key(kind, sys.intern(metadata.namespace), sys.intern(metadata.name)),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        generation=metadata.generation,
        deleting=metadata.deletion_timestamp is not None,
        managed_by=_intern(labels.get(LABEL_MANAGED_BY)),
        quota=_intern(labels.get(LABEL_QUOTA)),
        part=_intern(labels.get(LABEL_PART)),
        spec=_spec(kind, spec, metadata.annotations),
        active=None if active is None else active.status == "True",
        active_reason=sys.intern(active.reason) if active else "",
        active_message=sys.intern(active.message) if active else "",
        active_generation=active.observed_generation if active else 0,
        usage=_amounts(status.flavors_usage) if is_queue and status else None,
        reservation=_amounts(status.flavors_reservation) if is_queue and status else None,
        reserving_workloads=status.reserving_workloads if is_queue and status else 0,
        is_idle=kind != LOCAL_QUEUE or _is_idle(status),
        stop_policy=sys.intern(str(spec.get("stopPolicy") or "")) if is_queue else "",
        peoples=_peoples(spec) if is_queue else (),
        last_manager="" if kind == LOCAL_QUEUE else _last_manager(metadata.managed_fields),
    )


def _is_idle(status: QueueStatus | None) -> bool:
    return status is None or not (
        status.pending_workloads or status.reserving_workloads or status.admitted_workloads
    )


# Fields of a ClusterQueue that belong to people, with Kueue's defaults.
_PEOPLES: Final[Mapping[str, Any]] = {
    "queueingStrategy": "BestEffortFIFO",
    "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
    "admissionChecksStrategy": None,
    "admissionScope": None,
}


def _peoples(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """What a person chose, field by field, in words; nothing for a default."""
    chosen = {
        field: spec[field]
        for field, default in _PEOPLES.items()
        if spec.get(field) not in (None, {}, default)
    }
    return tuple(
        sys.intern(f"{field} {value}" if isinstance(value, str) else field)
        for field, value in chosen.items()
    )


def _condition(status: QueueStatus | None, kind: str) -> Condition | None:
    conditions = (status.conditions if status else None) or []
    return next((c for c in conditions if c.type == kind), None)


def _amounts(flavors: list[UsedFlavor] | None) -> dict[Pair, Amount]:
    return {
        Pair(used.name, flavor.name): Amount(_quantity(used.total), _quantity(used.borrowed))
        for flavor in flavors or []
        for used in flavor.resources or []
    }


def _quantity(value: str | int) -> Quantity:
    return _amount(value) or ZERO


def _amount(value: object) -> Quantity | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return Quantity.parse(str(value))
    except ValueError:  # no quantity, or a number with more digits than Python prints
        return None


def _extended(resources: Mapping[str, object] | None) -> Mapping[str, Quantity | None]:
    """Extended resources only; an amount that is no quantity is None, which is not zero.

    Machines of one kind share one mapping: there are thousands of nodes and few kinds, and
    measuring tells them apart by it.
    """
    found = tuple(sorted((name, value) for name, value in (resources or {}).items() if "/" in name))
    if all(isinstance(value, str) for _, value in found):
        return _shared_amounts(found)
    return {sys.intern(name): _amount(value) for name, value in found}


@lru_cache(maxsize=1024)
def _shared_amounts(found: tuple[tuple[str, object], ...]) -> Mapping[str, Quantity | None]:
    return {sys.intern(name): _amount(value) for name, value in found}


def _intern(text: str | None) -> str | None:
    return None if text is None else sys.intern(text)


def _interned(labels: Mapping[str, str] | None) -> dict[str, str]:
    """Label keys and most values repeat on thousands of nodes: keep each text once."""
    return {sys.intern(key): _once(value) for key, value in (labels or {}).items()}


@lru_cache(maxsize=4096)
def _once(text: str) -> str:
    """A text that may repeat or not. Those that do not are soon forgotten here: each node has some,
    and they must not outlive it."""
    return text


@lru_cache(maxsize=4096)
def _local_queue_spec(queue: str) -> Mapping[str, Any]:
    """The stated part of a LocalQueue's spec: a team's LocalQueues share it."""
    return {"clusterQueue": queue}


def _spec(
    kind: Kind, spec: Mapping[str, Any], annotations: Mapping[str, str] | None
) -> Mapping[str, Any]:
    found = stated(kind, spec, annotations)
    if kind == LOCAL_QUEUE and isinstance(found.get("clusterQueue"), str):
        return _local_queue_spec(found["clusterQueue"])
    return found


def _last_manager(fields: list[ManagedFields] | None) -> str:
    """Who last wrote the object other than through a subresource; "" when nobody can be named."""
    written = [f for f in fields or [] if not f.subresource and f.time]
    return max(written, key=lambda f: _when(f.time), default=ManagedFields()).manager


def _when(text: str | None) -> str:
    return text or ""
