"""From an AcceleratorQuota's JSON to a QuotaNode, whatever the JSON holds.

The tree must show every node that exists, broken or not, so reading never raises: a field that
cannot be read becomes a `FieldFault` with its path, and the rest of the node is kept.
"""

from collections.abc import Mapping
from typing import Any, Final, get_args

from quota_translator.core.names import pair_of
from quota_translator.core.namespaces import read_namespaces
from quota_translator.core.preemption import read_preemption
from quota_translator.core.quantity import ZERO, Quantity, QuantityError
from quota_translator.core.world import Budget, Expected, FieldFault, QuotaNode, StopPolicy

_LEAST_WEIGHT: Final = Quantity.parse("1n")
_MOST_WEIGHT: Final = Quantity.parse("1e15")


def read_quota(raw: Mapping[str, Any], source: str = "") -> QuotaNode:
    """Read one object. `source` says where it stands ("tree.yaml:12"), for people."""
    metadata, spec = _mapping(raw.get("metadata")), _mapping(raw.get("spec"))
    faults: list[FieldFault] = []
    return QuotaNode(
        name=_text(metadata.get("name")),
        role=_text(spec.get("role")),
        parent=_parent(spec, faults),
        budgets=_budgets(spec.get("budgets"), faults),
        preemption=read_preemption(spec.get("preemption"), faults),
        stop_policy=_stop_policy(spec.get("stopPolicy"), faults),
        fair_weight=_fair_weight(spec.get("fairSharing"), faults),
        namespaces=read_namespaces(spec, faults),
        expected=_expected(spec.get("expectedCapacity"), faults),
        faults=tuple(faults),
        priority_tier=spec.get("priorityTier") and _text(spec["priorityTier"]),
        distribution=spec.get("distribution") is not None,
        uid=_text(metadata.get("uid")),
        resource_version=_text(metadata.get("resourceVersion")),
        generation=_whole(metadata.get("generation")),
        created=_text(metadata.get("creationTimestamp")),
        deleting=metadata.get("deletionTimestamp") is not None,
        deleted=_text(metadata.get("deletionTimestamp")),
        finalizers=_names(metadata.get("finalizers")),
        annotations=_mapping(metadata.get("annotations")),
        status=_mapping(raw.get("status")),
        source=source,
    )


def _parent(spec: Mapping[str, Any], faults: list[FieldFault]) -> str | None:
    reference = spec.get("parentRef")
    if reference is None:
        return None
    name = _mapping(reference).get("name")
    if isinstance(name, str) and name:
        return name
    faults.append(FieldFault("spec.parentRef.name", f"{name!r} is not the name of a node"))
    return None


def _expected(value: Any, faults: list[FieldFault]) -> tuple[Expected, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        faults.append(FieldFault("spec.expectedCapacity", "is not a list"))
        return ()
    found = []
    for index, entry in enumerate(map(_mapping, value)):
        path, before = f"spec.expectedCapacity[{index}]", len(faults)
        pair = pair_of(_text(entry.get("resourceName")), _text(entry.get("resourceFlavor")))
        if entry.get("quantity") is None:
            faults.append(FieldFault(f"{path}.quantity", "is required"))
        quantity = _amount(entry.get("quantity"), f"{path}.quantity", faults)
        if len(faults) == before and quantity is not None:
            found.append(Expected(pair, quantity, index))
    return tuple(found)


def _stop_policy(value: Any, faults: list[FieldFault]) -> str | None:
    allowed = get_args(StopPolicy)
    if value is None or value in allowed:
        return None if value is None else str(value)
    faults.append(FieldFault("spec.stopPolicy", f"{value!r} is none of {', '.join(allowed)}"))
    return None


def _fair_weight(value: Any, faults: list[FieldFault]) -> Quantity | None:
    """Kueue takes 0, or more than a billionth."""
    if value is None:
        return None
    path = "spec.fairSharing.weight"
    given = _mapping(value).get("weight")
    if given is None:
        faults.append(FieldFault(path, "is required"))
        return None
    before = len(faults)
    weight = _amount(given, path, faults)
    if len(faults) > before or weight is None:
        return None
    if weight < ZERO or ZERO < weight <= _LEAST_WEIGHT or weight > _MOST_WEIGHT:
        message = f"is {weight}: it is 0, or more than 0.000000001 and at most 1e15"
        faults.append(FieldFault(path, message))
        return None
    return weight


def _budgets(value: Any, faults: list[FieldFault]) -> tuple[Budget, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        faults.append(FieldFault("spec.budgets", "is not a list"))
        return ()
    return tuple(_budget(_mapping(entry), index, faults) for index, entry in enumerate(value))


def _budget(entry: Mapping[str, Any], index: int, faults: list[FieldFault]) -> Budget:
    path = f"spec.budgets[{index}]"
    enforced = entry.get("enforced")
    if enforced is not None and not isinstance(enforced, bool):
        faults.append(FieldFault(f"{path}.enforced", f"{enforced!r} is neither true nor false"))
        enforced = None
    if entry.get("nominal") is None:
        faults.append(FieldFault(f"{path}.nominal", "is required"))
    return Budget(
        resource=_text(entry.get("resourceName")),
        flavor=_text(entry.get("resourceFlavor")),
        nominal=_amount(entry.get("nominal"), f"{path}.nominal", faults) or ZERO,
        borrowing_limit=_amount(entry.get("borrowingLimit"), f"{path}.borrowingLimit", faults),
        lending_limit=_amount(entry.get("lendingLimit"), f"{path}.lendingLimit", faults),
        enforced=enforced,
        index=index,
        policy=entry.get("policy") and _text(entry["policy"]),
        per_cluster=bool(entry.get("perCluster")),
    )


def _amount(value: Any, path: str, faults: list[FieldFault]) -> Quantity | None:
    """An int-or-string field. A JSON fraction or a boolean is neither, as for the API server."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | str):
        faults.append(
            FieldFault(path, f"{value!r} is neither an integer nor text: put it in quotes")
        )
        return ZERO
    try:
        return Quantity.parse(str(value))
    except QuantityError as error:
        faults.append(FieldFault(path, str(error)))
        return ZERO


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _names(value: Any) -> tuple[str, ...]:
    return tuple(map(_text, value)) if isinstance(value, list) else ()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0
