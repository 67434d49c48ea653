"""The end of the spine: from a translation, and what came of it, to the statuses."""

from collections.abc import Iterable, Mapping

import msgspec

from quota_translator.core.conditions import ORPHANS_HELD, USAGE_DIFFERS, Finding, conditions
from quota_translator.core.counted import Holdings
from quota_translator.core.lifecycle import staying_message
from quota_translator.core.names import ROOT, Key
from quota_translator.core.notes import Note
from quota_translator.core.options import Options
from quota_translator.core.status import Status, statuses
from quota_translator.core.terminating import Leaving, staying_finding
from quota_translator.core.translate import Translation
from quota_translator.core.world import Clock, World


def report(
    found: Translation,
    world: World,
    options: Options,
    clock: Clock,
    notes: Iterable[Note] = (),
    written: frozenset[Key] = frozenset(),
    holdings: Holdings | None = None,
    differing: Mapping[str, str] | None = None,
) -> dict[str, Status]:
    """The status of every node of the tree, and of those that are leaving it.

    `world` is what was translated. `notes` and `written` are what applying the plan brought;
    without them the statuses are those from before anything is applied. `holdings`: the workloads
    in queues that are being deleted, where somebody may look. `differing`: by node, in what Kueue's
    figures differ from its workloads.
    """
    told = _told(found, notes)
    made = statuses(
        found.tree,
        found.verdict,
        found.rendering,
        found.plan,
        found.usage,
        found.capacity,
        found.reading,
        world,
        found.memory,
        options,
        clock,
        told,
        written,
        found.stamped,
    )
    for name, waits_for in found.roster.staying.items():
        _add(found, made, name, staying_finding(name, staying_message(name, waits_for)), clock)
    if found.orphans.held and ROOT in made:
        finding = Finding(ORPHANS_HELD, True, ORPHANS_HELD, found.orphans.message)
        _add(found, made, ROOT, finding, clock)
    for name, text in (differing or {}).items():
        if name in made:
            _add(found, made, name, Finding(USAGE_DIFFERS, True, USAGE_DIFFERS, text), clock)
    return made | Leaving(found, world, options, told, holdings).statuses(clock)


def _told(found: Translation, notes: Iterable[Note]) -> tuple[Note, ...]:
    """What is said of a node that is gone is told by root."""
    tellers = found.tree.nodes.keys() | found.roster.leaving.keys()
    return tuple(
        note if note.node in tellers else msgspec.structs.replace(note, node=ROOT) for note in notes
    )


def _add(
    found: Translation, made: dict[str, Status], name: str, finding: Finding, clock: Clock
) -> None:
    made[name]["conditions"] += conditions(found.tree.nodes[name], [finding], clock)
