"""Nodes of the tree that were deleted: which of them still count, and which may go.

A deleted node leaves the tree, and is held by our finalizer until Kueue has nothing of it any
more. As long as something hangs from it that was not deleted it stays in the tree, because without
its Cohort all of that would be without bounds; and root stays until it is the last.
"""

from collections.abc import Iterable, Mapping

import msgspec

from quota_translator.core.kueue import is_ours
from quota_translator.core.names import FINALIZER, KINDS, KUEUE_VERSION, ROOT, Kind
from quota_translator.core.verdict import listed
from quota_translator.core.world import Memory, QuotaNode, World


class Roster(msgspec.Struct, frozen=True):
    """`members` make up the tree. `leaving` were deleted and do not belong to it any more;
    `staying` were deleted too, and are members because of those that are named here."""

    members: tuple[QuotaNode, ...] = ()
    leaving: Mapping[str, QuotaNode] = {}
    staying: Mapping[str, tuple[str, ...]] = {}


def muster(quotas: Iterable[QuotaNode]) -> Roster:
    """Every object of the tree in its place."""
    nodes = tuple(quotas)
    deleted = {node.name: node for node in nodes if node.deleting}
    if not deleted:
        return Roster(nodes)
    staying = _waits(nodes, deleted)
    others = sorted({node.name for node in nodes} - {ROOT})
    if ROOT in deleted and others:
        staying[ROOT] = others
    return Roster(
        members=tuple(n for n in nodes if n.name not in deleted or n.name in staying),
        leaving={name: node for name, node in deleted.items() if name not in staying},
        staying={name: tuple(sorted(names)) for name, names in staying.items()},
    )


def _waits(nodes: Iterable[QuotaNode], deleted: Mapping[str, QuotaNode]) -> dict[str, list[str]]:
    """For each deleted node with something alive beneath it, the children through which it is."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        child = node
        while not child.deleting or child.name in found:
            parent = deleted.get(child.parent or "") if child.name != ROOT else None
            if parent is None or child.name in found.get(parent.name, ()):
                break
            is_known = parent.name in found
            found.setdefault(parent.name, []).append(child.name)
            if is_known:
                break  # those above know of it already
            child = parent
    found.pop(ROOT, None)
    return found


def staying_message(name: str, waits_for: tuple[str, ...]) -> str:
    """What a deleted node says that is still of the tree."""
    if name == ROOT:
        return f"root was deleted and goes when it is the last node; there are {listed(waits_for)}"
    return (
        f"it was deleted and goes when nothing is beneath it any more: delete {listed(waits_for)} "
        "too, or give them another parent; until then it counts as before"
    )


# --- finalizers -------------------------------------------------------------------------------


def unclaimed(quotas: Iterable[QuotaNode]) -> tuple[QuotaNode, ...]:
    """The nodes that do not bear our finalizer. To a deleted one none can be added any more."""
    return tuple(n for n in quotas if not n.deleting and FINALIZER not in n.finalizers)


def claimed(node: QuotaNode) -> tuple[str, ...]:
    """Its finalizers with ours."""
    return (*node.finalizers, FINALIZER)


def released(node: QuotaNode) -> tuple[str, ...]:
    """Its finalizers without ours; all others stay."""
    return tuple(name for name in node.finalizers if name != FINALIZER)


def releasable(
    roster: Roster, world: World, manager: str, *, materializes: bool
) -> tuple[QuotaNode, ...]:
    """The leaving nodes that nothing of ours is left of, and whose finalizer is in the way.

    Where nothing is written to Kueue, or there is no Kueue any more, nobody waits for it.
    """
    held = [node for node in roster.leaving.values() if FINALIZER in node.finalizers]
    if not held or not materializes:
        return tuple(held)
    if not all(kind in world.known or is_absent(kind, world) for kind in KINDS):
        return ()
    left = {
        live.quota
        for key, live in world.live.items()
        if key.kind in world.known and is_ours(live, manager)
    }
    return tuple(node for node in held if node.name not in left)


def is_absent(kind: Kind, world: World) -> bool:
    """Kueue's kind is not served in any version, so there can be no object of it.

    Where the group is served in other versions alone there may be: those of an older Kueue.
    """
    served, versions = world.facts.served, world.facts.kueue_versions
    return served is not None and kind not in served and (not versions or KUEUE_VERSION in versions)


# --- one name, two objects --------------------------------------------------------------------


def without_former(memory: Memory, quotas: Iterable[QuotaNode]) -> Memory:
    """`memory` without what it holds of nodes whose name another object bears by now."""
    uids = {node.name: node.uid for node in quotas}
    before = memory.departed.uids
    anew = {name for name, uid in uids.items() if before.get(name, uid) != uid}
    departed = msgspec.structs.replace(memory.departed, uids=uids)
    if not anew:
        return msgspec.structs.replace(memory, departed=departed)
    return msgspec.structs.replace(
        memory,
        departed=departed,
        frozen_since={n: t for n, t in memory.frozen_since.items() if n not in anew},
        over_since={k: t for k, t in memory.over_since.items() if k[0] not in anew},
    )
