"""Desired against live objects: what is missing, differs, is not wanted, or is not ours.

Comparison is by value on the fields that we state. It only sorts; when each difference may be
written is `plan`'s business.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from quota_translator.core.kueue import is_ours, parent_of
from quota_translator.core.names import (
    CLUSTER_QUEUE,
    COHORT,
    KINDS,
    KUEUE_API_VERSION,
    KUEUE_VERSION,
    LABEL_MANAGED_BY,
    LABEL_QUOTA,
    LOCAL_QUEUE,
    RESOURCE_FLAVOR,
    Key,
    Kind,
)
from quota_translator.core.notes import KUEUE_UNAVAILABLE, OBJECT_CONFLICT, PROGRESSING, Note
from quota_translator.core.world import Desired, Observed, World

# The kinds that must be known before one is written or deleted: itself, and what it hangs on. A
# Cohort needs the ClusterQueues too: without them nobody knows what stands beneath it.
NEEDS: Final[Mapping[Kind, tuple[Kind, ...]]] = {
    RESOURCE_FLAVOR: (RESOURCE_FLAVOR, CLUSTER_QUEUE),
    COHORT: (COHORT, CLUSTER_QUEUE),
    CLUSTER_QUEUE: (CLUSTER_QUEUE, COHORT, RESOURCE_FLAVOR),
    LOCAL_QUEUE: (LOCAL_QUEUE, CLUSTER_QUEUE),
}


class Present(msgspec.Struct, frozen=True, gc=False):
    """A wanted object that exists, is ours and may be written."""

    wanted: Desired
    live: Observed


class Comparison(msgspec.Struct, frozen=True):
    missing: Mapping[Key, Desired]
    present: Mapping[Key, Present]  # LocalQueues only where they differ
    unwanted: Mapping[Key, Observed]  # ours, wanted by nobody, not being deleted yet
    conflicts: Mapping[Key, str]
    notes: frozenset[Note]


class Change(msgspec.Struct, frozen=True):
    """One difference between the tree and the cluster, whenever it may be written."""

    action: Literal["create", "update", "delete"]
    key: Key
    fields: tuple[str, ...] = ()


def compare(
    desired: Mapping[Key, Desired], kept: frozenset[str], world: World, manager: str
) -> Comparison:
    """Sort every object; those of `kept` nodes and of kinds that are not known take no part."""
    missing: dict[Key, Desired] = {}
    present: dict[Key, Present] = {}
    conflicts: dict[Key, str] = {}
    notes: set[Note] = set()
    unknown: dict[Kind, set[str]] = {}
    touchable = frozenset(kind for kind in KINDS if _may_touch(kind, world))
    for key, wanted in desired.items():
        live = world.live.get(key)
        if live is not None and key.kind == LOCAL_QUEUE and _agrees(wanted, live, manager):
            continue  # the many, told first
        if wanted.nodes & kept:
            continue
        if key.kind not in touchable:
            unknown.setdefault(key.kind, set()).update(wanted.nodes)
        elif live is None:
            missing[key] = wanted
        elif not is_ours(live, manager):
            conflicts[key] = (
                f"{key} exists and is not managed by {manager}; it is not adopted: delete it, "
                f"label it {LABEL_MANAGED_BY}={manager} and {LABEL_QUOTA}={wanted.quota}, or "
                "choose another name"
            )
            notes.update(Note(node, OBJECT_CONFLICT, conflicts[key]) for node in wanted.nodes)
        elif live.deleting:
            text = f"{key} is being deleted; it is created again when it is gone"
            notes.update(Note(node, PROGRESSING, text) for node in wanted.nodes)
        else:
            present[key] = Present(wanted, live)
    for kind, nodes in unknown.items():
        notes.update(_unavailable(kind, nodes, world))
    return Comparison(
        missing, present, _unwanted(desired, kept, world, manager), conflicts, frozenset(notes)
    )


def differing(
    spec: Mapping[str, Any], wanted: Desired, live: Observed, manager: str
) -> tuple[str, ...]:
    """What must be sent to give `live` this spec and our labels: top-level fields, "labels"."""
    fields = [name for name in {**spec, **live.spec} if spec.get(name) != live.spec.get(name)]
    if not _labelled(wanted, live, manager):
        fields.append("labels")
    return tuple(sorted(fields))


def changes(comparison: Comparison, manager: str) -> tuple[Change, ...]:
    """Every difference at once, for people: what all waves together will have done."""
    creates = [Change("create", key) for key in comparison.missing]
    updates = [
        Change("update", key, fields)
        for key, pair in comparison.present.items()
        if (fields := differing(pair.wanted.spec, pair.wanted, pair.live, manager))
    ]
    deletes = [Change("delete", key) for key in comparison.unwanted]
    return tuple(creates + updates + deletes)


def naming(cohort: str, live: Iterable[Observed]) -> tuple[Key, ...]:
    """Which live Cohorts and ClusterQueues, anyone's, stand directly beneath this Cohort."""
    return tuple(
        sorted(
            seen.key
            for seen in live
            if seen.key.kind in (COHORT, CLUSTER_QUEUE) and parent_of(seen) == cohort
        )
    )


def _labelled(wanted: Desired, live: Observed, manager: str) -> bool:
    return (live.managed_by, live.quota, live.part) == (manager, wanted.quota, wanted.part)


def _agrees(wanted: Desired, live: Observed, manager: str) -> bool:
    return (
        live.spec == wanted.spec
        and not live.deleting
        and live.managed_by == manager
        and live.quota == wanted.quota == wanted.key.name
        and live.part == wanted.part
    )


def _may_touch(kind: Kind, world: World) -> bool:
    return all(need in world.known for need in NEEDS[kind]) and (
        kind != LOCAL_QUEUE or world.namespaces is not None
    )


def _unavailable(kind: Kind, nodes: set[str], world: World) -> set[Note]:
    lacking = [need for need in NEEDS[kind] if need not in world.known]
    what = f"Kueue's {' and '.join(lacking)} objects" if lacking else "the namespaces"
    text = f"{what} are {absence(lacking, world)}: no {kind} is written or deleted"
    return {Note(node, KUEUE_UNAVAILABLE, text) for node in nodes}


def absence(lacking: Iterable[Kind], world: World) -> str:
    """Not read yet, which passes by itself; or not there, which somebody has to mend."""
    served, versions = world.facts.served, world.facts.kueue_versions
    if served is None or served.issuperset(lacking):
        return "not read yet"
    found = f", only as {', '.join(versions)}" if versions and KUEUE_VERSION not in versions else ""
    return f"not served as {KUEUE_API_VERSION}{found} (install Kueue, or a newer one)"


def _unwanted(
    desired: Mapping[Key, Desired], kept: frozenset[str], world: World, manager: str
) -> dict[Key, Observed]:
    return {
        key: live
        for key, live in world.live.items()
        if key not in desired
        and live.managed_by == manager
        and live.quota not in kept
        and not live.deleting
        and _may_touch(key.kind, world)
        and is_ours(live, manager)
    }
