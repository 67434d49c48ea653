"""The writes that are safe now.

Planning knows no history of its own: every pass takes what is wanted, what is live and what Kueue
may not have taken yet, and answers with writes of which each is safe whether or not, and in which
order, the others happen. When they are answered the next pass plans what they made possible, until
nothing is left. So a crash, a refusal or somebody else's edit needs no special case.
"""

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any

import msgspec

from quota_translator.core.actions import PLACE, Action, Plan
from quota_translator.core.compare import Comparison, Present, compare, differing
from quota_translator.core.drift import has_drifted, repaired
from quota_translator.core.interim import lowered
from quota_translator.core.kueue import cells, is_ours, parent_of
from quota_translator.core.links import cohort
from quota_translator.core.moves import settle_places
from quota_translator.core.names import (
    CLUSTER_QUEUE,
    COHORT,
    KINDS,
    LOCAL_QUEUE,
    RESOURCE_FLAVOR,
    Key,
)
from quota_translator.core.notes import PARENT_NOT_MATERIALIZED, PROGRESSING, Note
from quota_translator.core.options import Options
from quota_translator.core.quantity import Quantity
from quota_translator.core.reasons import parent_problem
from quota_translator.core.scene import Scene
from quota_translator.core.shares import empty_cohort, writable_now
from quota_translator.core.sweep import sweep
from quota_translator.core.tree import Tree
from quota_translator.core.world import Clock, Desired, Memory, World
from quota_translator.core.writes import change, creation

__all__ = ["Action", "Plan", "plan"]

_RANK = {kind: rank for rank, kind in enumerate(KINDS)}


def plan(
    desired: Mapping[Key, Desired],
    kept: frozenset[str],
    tree: Tree,
    world: World,
    memory: Memory,
    options: Options,
    clock: Clock,
) -> Plan:
    """What to write now, in order, and what is not done yet and why.

    Objects of `kept` nodes, objects that are not ours and kinds that are not known are left alone.
    With no namespace enrolled nothing is written at all.
    """
    if not options.materialize.enabled:
        return Plan()
    manager = options.materialize.manager
    compared = compare(desired, kept, world, manager)
    scene = Scene(desired, kept, tree, world, memory, clock, manager, compared)
    actions = [*_flavors(scene), *_weighty(scene), *_local_queues(scene)]
    _note_strangers_above(scene)
    deletions, held = sweep(scene)
    for nodes in {scene.nodes(action.key) for action in actions}:  # many share theirs
        scene.notes.update(Note(n, PROGRESSING, "writes to Kueue are under way") for n in nodes)
    scene.note_disputes()
    ordered = [*_ordered(scene, actions), *deletions]
    return Plan(
        actions=tuple(ordered),
        notes=tuple(sorted(scene.notes)),
        conflicts=compared.conflicts,
        waiting=scene.waiting,
        held=held,
        repairs=scene.repairs,
        wake_at=_wake_at(scene, held),
    )


def _note_strangers_above(scene: Scene) -> None:
    """What already hangs beneath a stranger's Cohort stays, but nobody answers for its bounds."""
    for key in scene.compared.present if scene.compared.conflicts else ():
        parent = _above(scene, key) if key.kind in (COHORT, CLUSTER_QUEUE) else None
        if parent is not None and parent in scene.compared.conflicts:
            text = f"{key} stands beneath {parent}: {parent_problem(scene, parent.name)}"
            scene.note(key, PARENT_NOT_MATERIALIZED, text)


def _ordered(scene: Scene, actions: Iterable[Action]) -> Iterator[Action]:
    """By stage; in it flavors, Cohorts with parents first, ClusterQueues, LocalQueues; by key."""
    places: dict[tuple[int, int, int], list[Action]] = {}
    for action in actions:
        kind = action.key.kind
        depth = scene.depth(action.key) if kind == COHORT else 0
        places.setdefault((action.stage, _RANK[kind], depth), []).append(action)
    for place in sorted(places):
        yield from sorted(places[place], key=attrgetter("key"))


def _wake_at(scene: Scene, held: Mapping[Key, str]) -> float | None:
    """When a wait for time alone ends: a pause, or a Cohort's second."""
    if scene.waiting or held:
        entries = scene.settling.values()
        scene.wakes |= {e.until for e in entries if e.until > scene.clock.steady}
    return min(scene.wakes, default=None)


# --- Cohorts and ClusterQueues ----------------------------------------------------------------


def _weighty(scene: Scene) -> Iterator[Action]:
    """The objects that hold shares; sums are looked at only when one of them differs."""
    if not _differs(scene.compared):
        return
    settle_places(scene)
    # New Cohorts have no share yet. Teams take room before the groups' own remainders do.
    for key in sorted(scene.created):
        if key.kind == COHORT:
            yield creation(scene.desired[key], empty_cohort(scene, key), _above(scene, key))
    for kind in (CLUSTER_QUEUE, COHORT):
        wanted = {key for key in scene.compared.present if key.kind == kind}
        if kind == CLUSTER_QUEUE:
            wanted |= {key for key in scene.created if key.kind == kind}
        for key in sorted(wanted):
            action = _write(scene, key)
            if action is not None:
                yield action
    for key in sorted(scene.yielded.keys() & scene.compared.unwanted.keys()):
        yield from _empty(scene, key)


def _differs(compared: Comparison) -> bool:
    weighty = (COHORT, CLUSTER_QUEUE)
    return (
        any(key.kind in weighty for key in compared.missing)
        or any(key.kind in weighty for key in compared.unwanted)
        or any(
            pair.live.spec != pair.wanted.spec
            for key, pair in compared.present.items()
            if key.kind in weighty
        )
    )


def _write(scene: Scene, key: Key) -> Action | None:
    """The write that brings an object nearer to what is wanted; None when there is none now."""
    found = scene.compared.present.get(key)
    if found is not None and scene.is_paused(key):
        scene.give_up(key)
        return None
    spec, reserved = writable_now(scene, key)
    fields = differing(spec, found.wanted, found.live, scene.manager) if found else ("spec",)
    if not fields:
        return None
    if scene.is_refused(key, spec):
        scene.sums.reserve(scene.groups_over(key), reserved, -1)
        scene.give_up(key)
        return None
    if found is None:
        return creation(scene.desired[key], spec, _above(scene, key))
    return _update(scene, found, spec, fields)


def _update(
    scene: Scene, found: Present, spec: Mapping[str, Any], fields: tuple[str, ...]
) -> Action:
    key = found.wanted.key
    _note_repair(scene, found, fields)
    action = change(found.live, spec, fields, found.wanted)
    if key in scene.moved:
        stage, requires, leaves = PLACE, _above(scene, key), parent_of(found.live)
        return msgspec.structs.replace(action, stage=stage, requires=requires, leaves=leaves)
    if flavor := _new_flavor(scene, spec):
        return msgspec.structs.replace(action, stage=max(PLACE, action.stage), requires=flavor)
    return action


def _empty(scene: Scene, key: Key) -> Iterator[Action]:
    """An unwanted Cohort that cannot go yet gives up the share that is in the way of a move."""
    live = scene.compared.unwanted[key]
    amounts = scene.yielded[key].items()
    spec = lowered(live.spec, {pair: Quantity(amount) for pair, amount in amounts})
    if not scene.is_refused(key, spec):
        yield change(live, spec, ("resourceGroups",), None)


def _note_repair(scene: Scene, found: Present, fields: tuple[str, ...]) -> None:
    key = found.wanted.key
    if has_drifted(found.wanted, found.live, scene.memory.converged):
        scene.repairs[key] = repaired(scene.drift.get(key), found.live, fields, scene.clock)


def _above(scene: Scene, key: Key) -> Key | None:
    parent = scene.parent(key)
    return cohort(parent) if parent else None


def _new_flavor(scene: Scene, spec: Mapping[str, Any]) -> Key | None:
    """A flavor that the spec lists and this plan creates: a queue that comes first is inactive."""
    listed = {pair.flavor for pair in cells(spec)}
    for key in scene.compared.missing:
        if key.kind == RESOURCE_FLAVOR and key.name in listed:
            return key
    return None


# --- flavors and LocalQueues ------------------------------------------------------------------


def _flavors(scene: Scene) -> Iterator[Action]:
    for key in scene.compared.missing:
        if key.kind == RESOURCE_FLAVOR and not scene.is_refused(key, scene.desired[key].spec):
            yield creation(scene.desired[key], scene.desired[key].spec)
    yield from _plain_updates(scene, RESOURCE_FLAVOR)


def _local_queues(scene: Scene) -> Iterator[Action]:
    queues: dict[str, Key] = {}  # shared by a team's LocalQueues, of which there are many
    for key, wanted in scene.compared.missing.items():
        if key.kind != LOCAL_QUEUE:
            continue
        spec = wanted.spec
        name = spec["clusterQueue"]
        queue = queues.setdefault(name, Key(CLUSTER_QUEUE, "", name))
        if queue not in scene.created and queue not in scene.compared.present:
            text = f"its LocalQueues wait until {queue} exists and is managed by {scene.manager}"
            live = scene.live.get(queue)
            is_going = live is not None and live.deleting and is_ours(live, scene.manager)
            if queue not in scene.waiting and not is_going:  # else its own reason says more
                scene.note(key, PARENT_NOT_MATERIALIZED, text)
            scene.waiting[key] = text
        elif not scene.is_refused(key, spec):
            yield creation(wanted, spec, queue)
    yield from _plain_updates(scene, LOCAL_QUEUE)


def _plain_updates(scene: Scene, kind: str) -> Iterator[Action]:
    for key, found in scene.compared.present.items():
        if key.kind != kind:
            continue
        fields = differing(found.wanted.spec, found.wanted, found.live, scene.manager)
        if fields and not scene.is_paused(key) and not scene.is_refused(key, found.wanted.spec):
            _note_repair(scene, found, fields)
            yield change(found.live, found.wanted.spec, fields, found.wanted)
