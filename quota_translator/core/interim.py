"""Specs on the way from what is live to what is wanted."""

from collections.abc import Mapping
from typing import Any

from quota_translator.core.names import CLUSTER_QUEUE, Key, Kind, Pair
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.world import Desired


def parent_field(kind: Kind) -> str:
    return "cohortName" if kind == CLUSTER_QUEUE else "parentName"


def parent_in(key: Key, spec: Mapping[str, Any]) -> str | None:
    """The Cohort that a spec in normal form names, or None."""
    return spec.get(parent_field(key.kind)) or None


def interim(
    wanted: Desired,
    parent: str | None,
    nominal: Mapping[Pair, Quantity],
    borrowing: Mapping[Pair, Quantity],
) -> Mapping[str, Any]:
    """The wanted spec beneath `parent`, with these amounts in place of the wanted ones.

    The very spec that is wanted when nothing differs. Without a parent there are no limits, which
    Kueue refuses there, and a ClusterQueue never lends more than its nominal (its webhook again).
    """
    spec = wanted.spec
    if parent == parent_in(wanted.key, spec) and not nominal and not borrowing:
        return spec
    field = parent_field(wanted.key.kind)
    changed = {name: value for name, value in spec.items() if name != field}
    if parent is not None:
        changed[field] = parent
    if "resourceGroups" in spec:
        changed["resourceGroups"] = [
            _group(group, wanted.key.kind, nominal, borrowing, limits=parent is not None)
            for group in spec["resourceGroups"]
        ]
    return changed


def lowered(spec: Mapping[str, Any], nominal: Mapping[Pair, Quantity]) -> Mapping[str, Any]:
    """A live spec with these nominals in place of its own."""
    groups = [_group(group, None, nominal, {}) for group in spec.get("resourceGroups", [])]
    return {**spec, "resourceGroups": groups}


def _group(
    group: Mapping[str, Any],
    kind: Kind | None,
    nominal: Mapping[Pair, Quantity],
    borrowing: Mapping[Pair, Quantity],
    *,
    limits: bool = True,
) -> dict[str, Any]:
    def entry(flavor: str, cell: Mapping[str, Any]) -> dict[str, Any]:
        pair = Pair(cell["name"], flavor)
        changed = dict(cell)
        if pair in nominal:
            changed["nominalQuota"] = nominal[pair]
        if pair in borrowing:
            changed["borrowingLimit"] = borrowing[pair]
        if not limits:
            changed.pop("borrowingLimit", None)
            changed.pop("lendingLimit", None)
        lending = changed.get("lendingLimit")
        if kind == CLUSTER_QUEUE and lending is not None:
            changed["lendingLimit"] = min(lending, changed.get("nominalQuota", ZERO))
        return changed

    flavors = [
        {**flavor, "resources": [entry(flavor["name"], cell) for cell in flavor["resources"]]}
        for flavor in group["flavors"]
    ]
    return {**group, "flavors": flavors}
