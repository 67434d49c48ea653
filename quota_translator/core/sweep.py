"""What is ours and wanted by nobody goes, kind by kind, unless something still hangs on it."""

import msgspec

from quota_translator.core.actions import DELETE, Action
from quota_translator.core.kueue import cells, nominal_cells, parent_of
from quota_translator.core.names import (
    CLUSTER_QUEUE,
    COHORT,
    KINDS,
    RESOURCE_FLAVOR,
    ROOT,
    Key,
)
from quota_translator.core.notes import MATERIALIZATION_FAILED, PROGRESSING, Note
from quota_translator.core.scene import Scene
from quota_translator.core.world import Observed
from quota_translator.core.writes import change

_NAMED = 3


def sweep(scene: Scene) -> tuple[list[Action], dict[Key, str]]:
    """The writes that are safe now, LocalQueues first, and what cannot go yet, with the reason.

    A Cohort that is gone is an unlimited root to whatever still names it, so it stays with its last
    quota until nothing does, in Kueue's eyes too.
    """
    actions: list[Action] = []
    held: dict[Key, str] = {}
    for kind in reversed(KINDS):
        for key, live in sorted(scene.compared.unwanted.items()):
            if key.kind != kind:
                continue
            if scene.is_refused(key, {}):
                if not scene.nodes(key):
                    scene.notes.add(Note(ROOT, MATERIALIZATION_FAILED, scene.waiting[key]))
                continue
            holders = _holders(scene, key)
            if holders and parent_of(live) and _is_idle_loop(scene, key):
                actions.append(_untied(live))
            elif holders:
                held[key] = _text(key, holders)
                scene.notes.add(Note(ROOT, PROGRESSING, held[key]))
                scene.note(key, PROGRESSING, held[key])
            else:
                actions.append(_deletion(live))
    return actions, held


def _deletion(live: Observed) -> Action:
    weighty = live.key.kind in (COHORT, CLUSTER_QUEUE)
    return Action(
        "delete",
        live.key,
        DELETE,
        nodes=frozenset({live.quota or ""}),
        quota=live.quota or "",
        part=live.part,
        uid=live.uid,
        shrinks=nominal_cells(live.spec) if weighty else {},
        leaves=parent_of(live) if weighty else None,
    )


def _is_idle_loop(scene: Scene, key: Key) -> bool:
    """A Cohort that stands beneath itself, with nothing in the loop but others to be deleted."""
    if key.kind != COHORT or key.name not in scene.sums.links.above(key):
        return False
    return all(
        other.kind == COHORT and other in scene.compared.unwanted
        for other in scene.sums.links.beneath(key.name)
    )


def _untied(live: Observed) -> Action:
    """Out of the loop, so that each of those in it can go when nothing names it any more."""
    action = change(live, {}, tuple(sorted(live.spec)), None)
    return msgspec.structs.replace(action, stage=DELETE, leaves=parent_of(live))


def _holders(scene: Scene, key: Key) -> list[Key]:
    if key.kind == COHORT:
        return scene.sums.links.members(key.name)
    if key.kind == RESOURCE_FLAVOR:
        return sorted(
            other
            for other, seen in scene.live.items()
            if other.kind == CLUSTER_QUEUE
            and any(pair.flavor == key.name for pair in cells(seen.spec))
        )
    return []


def _text(key: Key, holders: list[Key]) -> str:
    names = ", ".join(str(holder) for holder in holders[:_NAMED])
    more = f" and {len(holders) - _NAMED} more" if len(holders) > _NAMED else ""
    verb = "uses" if len(holders) == 1 else "use"
    return f"{key} is not wanted any more but stays as it is: {names}{more} still {verb} it"
