"""What applying a plan would change, object by object, in the end.

The controller writes in stages, an object perhaps more than once; a person who reads a plan wants
to know what is there now and what will be. So this compares the desired objects with the live ones.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from quota_translator.core.kueue import cells, is_ours, labels, plain
from quota_translator.core.names import (
    COHORT,
    KINDS,
    LABEL_MANAGED_BY,
    LABEL_PART,
    LABEL_QUOTA,
    LOCAL_QUEUE,
    Key,
)
from quota_translator.core.render import Rendering
from quota_translator.core.tree import Tree
from quota_translator.core.world import Desired, Observed

Verb = Literal["create", "update", "delete", "keep", "conflict"]
VERBS: tuple[Verb, ...] = ("create", "update", "delete", "keep", "conflict")
_LIMITS = {"nominalQuota": "nominal", "borrowingLimit": "borrowing", "lendingLimit": "lending"}


class Detail(msgspec.Struct, frozen=True):
    """One difference: what, and its old and new values as text ("" where there is none)."""

    what: str
    old: str
    new: str


class Change(msgspec.Struct, frozen=True):
    """`fields` are the top-level fields of the spec (and "labels") that differ."""

    action: Verb
    key: Key
    fields: tuple[str, ...] = ()
    details: tuple[Detail, ...] = ()
    message: str = ""


def changes(
    rendering: Rendering, tree: Tree, live: Mapping[Key, Observed], manager: str
) -> tuple[Change, ...]:
    """All changes: by kind in the order of writing, parents first, then namespace and name.

    Objects that are as they should be are left out; those of frozen nodes are there as "keep".
    """
    found = [
        *_wanted(rendering, live, manager),
        *_unwanted(rendering, live, manager),
    ]
    return tuple(sorted(found, key=lambda change: place(change.key, tree)))


def place(key: Key, tree: Tree) -> tuple[int, int, str, str]:
    """Sorts keys as they are shown: Cohorts parents first, so that the list can be applied."""
    depth = tree.depth(key.name) if key.kind == COHORT else 0
    return (KINDS.index(key.kind), depth, key.namespace, key.name)


def _wanted(rendering: Rendering, live: Mapping[Key, Observed], manager: str) -> Iterator[Change]:
    for key, wanted in rendering.desired.items():
        found = live.get(key)
        if found is None:
            yield Change("create", key, tuple(wanted.spec), tuple(_created(wanted)))
        elif not is_ours(found, manager):
            owner = found.managed_by
            whose = f"managed by {owner!r}" if owner else "nobody's label is on it"
            yield Change("conflict", key, message=f"exists, and is not ours ({whose})")
        else:
            change = _difference(key, wanted, found, manager)
            if change.fields:
                yield change


def _unwanted(rendering: Rendering, live: Mapping[Key, Observed], manager: str) -> Iterator[Change]:
    for key, found in live.items():
        if key in rendering.desired or not is_ours(found, manager):
            continue
        if found.quota in rendering.kept:
            yield Change("keep", key, message=f"{found.quota} is frozen or has no place")
        elif key.kind != LOCAL_QUEUE or rendering.namespaces_known:
            yield Change("delete", key)


def _difference(key: Key, wanted: Desired, found: Observed, manager: str) -> Change:
    names = [*wanted.spec, *(name for name in found.spec if name not in wanted.spec)]
    fields = [name for name in names if wanted.spec.get(name) != found.spec.get(name)]
    details: list[Detail] = []
    for name in fields:
        if name == "resourceGroups":
            details += _cell_details(found.spec, wanted.spec)
        else:
            details.append(_detail(name, found.spec.get(name), wanted.spec.get(name)))
    marks = {
        LABEL_MANAGED_BY: found.managed_by,
        LABEL_QUOTA: found.quota,
        LABEL_PART: found.part,
    }
    if {label: value for label, value in marks.items() if value} != labels(wanted, manager):
        fields.append("labels")
    return Change("update", key, tuple(fields), tuple(details))


def _created(wanted: Desired) -> Iterator[Detail]:
    """Of a new object: where it hangs, and what it is given. Filler and cover cells go unsaid."""
    for name in ("parentName", "cohortName", "clusterQueue"):
        if name in wanted.spec:
            yield Detail(name, "", str(wanted.spec[name]))
    for pair, cell in cells(wanted.spec).items():
        if "/" in pair.resource and (cell.get("nominalQuota") or cell.get("borrowingLimit")):
            yield Detail(str(pair), "", cell_text(cell))


def _cell_details(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Detail]:
    before, after = cells(old), cells(new)
    found = []
    for pair in [*after, *(pair for pair in before if pair not in after)]:
        was, will = before.get(pair), after.get(pair)
        if was is None or will is None:
            found.append(Detail(str(pair), cell_text(was), cell_text(will)))
            continue
        for name, word in _LIMITS.items():
            if was.get(name) != will.get(name):
                found.append(_detail(f"{word} {pair}", was.get(name), will.get(name)))
    return found or [Detail("resourceGroups", "", "in another order or grouping")]


def _detail(what: str, old: Any, new: Any) -> Detail:
    return Detail(what, _text(old), _text(new))


def cell_text(cell: Mapping[str, Any] | None) -> str:
    """8, borrowing 4, lending 2"""
    if cell is None:
        return ""
    limits = [
        f"{word} {plain(cell[name])}"
        for name, word in list(_LIMITS.items())[1:]
        if cell.get(name) is not None
    ]
    return ", ".join([str(plain(cell.get("nominalQuota", "?"))), *limits])


def _text(value: Any) -> str:
    if value is None:
        return ""
    value = plain(value)
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    return str(value)
