"""A plan as one document, for programs. `text.py` has the same for people."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from quota_translator.core.kueue import body
from quota_translator.core.names import API_VERSION
from quota_translator.core.options import Options
from quota_translator.core.rootstatus import capacity_rows, unattributed_rows
from quota_translator.core.translate import Translation
from quota_translator.core.tree import Tree
from quota_translator.core.world import QuotaNode
from quota_translator.local.changes import Change, place

# They would make no two documents equal.
_TIMES = ("lastTransitionTime", "observedAt", "since", "until", "overSince")


class View(msgspec.Struct, frozen=True, eq=False):
    """All that is shown of one look at the world.

    `where(source, field)` is the file and line of a field of the object read at `source`.
    """

    translation: Translation
    statuses: Mapping[str, Mapping[str, Any]]
    changes: tuple[Change, ...]
    options: Options
    notes: Sequence[str] = ()
    where: Callable[[str, str], str] = lambda source, _field: source

    def order(self) -> tuple[str, ...]:
        """Every node once: the tree in pre-order, then those without a place in it."""
        return node_order(self.translation.tree)


def node_order(tree: Tree) -> tuple[str, ...]:
    return (*tree.order, *(name for name in tree.nodes if not tree.is_reached(name)))


def document(view: View) -> dict[str, Any]:
    """`kind: Plan`. The same input gives the same document, whenever it is made."""
    translation = view.translation
    reading = translation.reading
    return {
        "apiVersion": API_VERSION,
        "kind": "Plan",
        "sound": not translation.verdict.violations,
        "capacity": [_timeless(row) for row in capacity_rows(translation.capacity)],
        "unattributed": unattributed_rows(reading.unattributed) if reading else [],
        "nodes": [_node(view, translation.tree.nodes[name]) for name in view.order()],
        "violations": violation_rows(view),
        "objects": objects(view),
        "changes": [_change(change) for change in view.changes],
        "notes": list(view.notes),
    }


def objects(view: View) -> list[dict[str, Any]]:
    """The desired Kueue objects, whole: in the order in which they can be applied."""
    desired = view.translation.rendering.desired
    tree = view.translation.tree
    keys = sorted(desired, key=lambda key: place(key, tree))
    return [body(desired[key], view.options.materialize.manager) for key in keys]


def violation_rows(view: View) -> list[dict[str, Any]]:
    return [
        {
            "node": violation.node,
            "reason": violation.reason,
            "subject": violation.subject,
            "field": violation.field,
            "message": violation.message,
            "source": view.where(violation.source, violation.field),
        }
        for violation in view.translation.verdict.violations
    ]


def _node(view: View, node: QuotaNode) -> dict[str, Any]:
    status = view.statuses.get(node.name, {})
    return {
        "name": node.name,
        "role": node.role,
        "parent": node.parent,
        "path": view.translation.tree.path(node.name),
        "conditions": [_timeless(row) for row in status.get("conditions", [])],
        "budgets": [_timeless(row) for row in status.get("budgets", [])],
        "frozen": node.name in view.translation.verdict.frozen,
        "source": node.source,
    }


def _change(change: Change) -> dict[str, Any]:
    found: dict[str, Any] = {
        "action": change.action,
        "kind": change.key.kind,
        "namespace": change.key.namespace,
        "name": change.key.name,
        "fields": list(change.fields),
        "details": [msgspec.structs.asdict(detail) for detail in change.details],
    }
    return found | ({"message": change.message} if change.message else {})


def _timeless(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without its times, those of the rows within it included."""
    kept = {name: value for name, value in row.items() if name not in _TIMES}
    for name, value in kept.items():
        if isinstance(value, list):
            kept[name] = [_timeless(v) if isinstance(v, Mapping) else v for v in value]
    return kept
