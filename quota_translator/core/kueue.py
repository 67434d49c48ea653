"""Kueue's objects in normal form, and back to what is written.

The normal form of a spec is plain JSON in which every quantity is a `Quantity`. Two specs in normal
form are equal exactly when Kueue would treat them as equal: "1000" and "1k" are one value, and a
field that someone adds inside resourceGroups makes a difference that can be seen. Lists keep their
order, because in Kueue the order of flavors has meaning.
"""

from collections.abc import Mapping
from typing import Any

from quota_translator.core.memo import ByIdentity
from quota_translator.core.names import (
    CLUSTER_QUEUE,
    COHORT,
    COVER_FLAVOR,
    COVER_PART,
    KUEUE_API_VERSION,
    LABEL_MANAGED_BY,
    LABEL_PART,
    LABEL_QUOTA,
    LOCAL_QUEUE,
    RESOURCE_FLAVOR,
    ROOT,
    STATES,
    Kind,
    Pair,
    pair_of,
)
from quota_translator.core.quantity import Quantity, QuantityError
from quota_translator.core.world import Desired, Observed

QUANTITY_FIELDS = frozenset({"nominalQuota", "borrowingLimit", "lendingLimit", "weight"})
# The fields of which this program has an opinion, by kind. All else belongs to people.
STATED_FIELDS: Mapping[Kind, tuple[str, ...]] = {
    RESOURCE_FLAVOR: ("nodeLabels", "nodeTaints", "tolerations", "topologyName"),
    COHORT: ("parentName", "resourceGroups"),
    CLUSTER_QUEUE: ("cohortName", "resourceGroups", "namespaceSelector", "preemption"),
    LOCAL_QUEUE: ("clusterQueue",),
}
# Stated while the tree has an opinion, and people's otherwise. In the order of their names.
OPTIONAL_FIELDS: Mapping[Kind, tuple[str, ...]] = {
    COHORT: ("fairSharing",),
    CLUSTER_QUEUE: ("fairSharing", "stopPolicy"),
}


def normal(value: Any, field: str = "") -> Any:
    """JSON → normal form. Unreadable quantities stay text, and so differ from any value."""
    if isinstance(value, Mapping):
        return {name: normal(inner, name) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [normal(inner) for inner in value]
    if field in QUANTITY_FIELDS and isinstance(value, str | int) and not isinstance(value, bool):
        try:
            return Quantity.parse(str(value))
        except QuantityError:
            return value
    return value


def plain(value: Any) -> Any:
    """Normal form → JSON with canonical quantities."""
    if isinstance(value, Quantity):
        return value.canonical()
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


def stated(
    kind: Kind, spec: Mapping[str, Any] | None, annotations: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The part of a live spec of which we have an opinion, in normal form. Empty is absent."""
    if not spec:
        return {}
    names = stated_names(kind, annotations)
    found = {name: normal(spec[name], name) for name in names if name in spec}
    return {name: value for name, value in found.items() if value not in (None, [], "")}


def stated_names(kind: Kind, annotations: Mapping[str, str] | None) -> tuple[str, ...]:
    """The fields of a live spec that are ours: always, or because the annotation says so."""
    if not annotations or STATES not in annotations:
        return STATED_FIELDS[kind]
    listed = str(annotations[STATES]).split(",")
    optional = OPTIONAL_FIELDS.get(kind, ())
    return STATED_FIELDS[kind] + tuple(name for name in optional if name in listed)


def states(kind: Kind, spec: Mapping[str, Any]) -> str:
    """The annotation's value for a wanted spec; "" for none."""
    return ",".join(name for name in OPTIONAL_FIELDS.get(kind, ()) if name in spec)


def labels(wanted: Desired, manager: str) -> dict[str, str]:
    """The labels that say an object is ours, and which node (and part) it comes from."""
    ours = {LABEL_MANAGED_BY: manager, LABEL_QUOTA: wanted.quota}
    return ours | ({LABEL_PART: wanted.part} if wanted.part else {})


def body(wanted: Desired, manager: str) -> dict[str, Any]:
    """The whole object, as it is created and as it is shown to people."""
    metadata: dict[str, Any] = {"name": wanted.key.name}
    if wanted.key.namespace:
        metadata["namespace"] = wanted.key.namespace
    metadata["labels"] = labels(wanted, manager)
    if told := states(wanted.key.kind, wanted.spec):
        metadata["annotations"] = {STATES: told}
    spec = plain(wanted.spec)
    return {
        "apiVersion": KUEUE_API_VERSION,
        "kind": wanted.key.kind,
        "metadata": metadata,
        "spec": spec,
    }


def is_ours(live: Observed, manager: str) -> bool:
    """Ours: it carries our managed-by label *and* the name that its other labels give.

    So a copy that someone made of our object, labels and all, is not ours.
    """
    if live.managed_by != manager or not live.quota:
        return False
    if live.part is None and live.key.kind != RESOURCE_FLAVOR:  # nearly all
        return live.key.name == live.quota
    return live.key.name == _name_of(live.key.kind, live.quota, live.part)


def _name_of(kind: Kind, quota: str, part: str | None) -> str | None:
    if kind == RESOURCE_FLAVOR:
        return COVER_FLAVOR if (quota, part) == (ROOT, COVER_PART) else None
    return None if part else quota


def nominal_cells(spec: Mapping[str, Any]) -> Mapping[Pair, Quantity]:
    """What a spec funds, pair by pair (nominalQuota of every cell). Specs are never changed."""
    return _nominals_of(spec)


def cells(spec: Mapping[str, Any]) -> Mapping[Pair, Mapping[str, Any]]:
    """Every cell of spec.resourceGroups by pair, in the order in which they stand."""
    return _cells_of(spec)


def _nominals(spec: Mapping[str, Any]) -> dict[Pair, Quantity]:
    amounts = ((pair, cell.get("nominalQuota")) for pair, cell in cells(spec).items())
    return {pair: amount for pair, amount in amounts if isinstance(amount, Quantity)}


def _cells(spec: Mapping[str, Any]) -> dict[Pair, Mapping[str, Any]]:
    found: dict[Pair, Mapping[str, Any]] = {}
    for group in spec.get("resourceGroups") or []:
        for flavor in group.get("flavors") or []:
            for cell in flavor.get("resources") or []:
                found[pair_of(cell.get("name", ""), flavor.get("name", ""))] = cell
    return found


_cells_of = ByIdentity(_cells)
_nominals_of = ByIdentity(_nominals)


def parent_of(live: Observed) -> str | None:
    """The Cohort that a live Cohort or ClusterQueue names, or None."""
    field = "cohortName" if live.key.kind == CLUSTER_QUEUE else "parentName"
    return live.spec.get(field) or None
