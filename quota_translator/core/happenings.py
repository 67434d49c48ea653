"""What happened, in the words of Events and the log: from a stored status to the one written next.

Only what differs from the *stored* status has happened. So a restart, which computes everything
again, repeats nothing; and what was never written to a status, because it was over too soon, is not
told either. An event's reason is the condition's, so that one search finds both.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from quota_translator.core.actions import Plan
from quota_translator.core.conditions import DEGRADED, MATERIALIZED, READY, TERMINATING, stored
from quota_translator.core.names import ROOT, Key, Pair
from quota_translator.core.notes import DRAINING, FROZEN, PROGRESSING
from quota_translator.core.results import Result, Results
from quota_translator.core.rootstatus import capacity_from_status
from quota_translator.core.tree import Tree
from quota_translator.core.world import Drift, QuotaNode

THAWED: Final = "Thawed"
CAPACITY_FELL: Final = "CapacityFell"
DRIFT_REPAIRED: Final = "DriftRepaired"
DRAINED: Final = "Drained"
NOT_RETIRED: Final = "NotRetired"
# One pass tells of at most so many nodes for one reason; the rest is one more, on root.
MOST_ALIKE: Final = 20

_ORDINARY: Final = frozenset({MATERIALIZED, DRAINED, THAWED, DRAINING, TERMINATING})
# Not worth an event: writes on their way, and what Ready says better.
_SILENT: Final = frozenset({PROGRESSING, FROZEN})
_STANDING: Final = frozenset({READY, DEGRADED, MATERIALIZED})

Status = Mapping[str, Any]
Row = Mapping[str, Any]


class Happening(msgspec.Struct, frozen=True, gc=False):
    """One thing that happened to one node of the tree. `message` is a sentence for people."""

    node: str
    uid: str
    reason: str
    message: str

    @property
    def is_warning(self) -> bool:
        return self.reason not in _ORDINARY


class Change(msgspec.Struct, frozen=True):
    """A status that was written: the node as it was stored before, and what it says now."""

    node: QuotaNode
    status: Status


class Told(msgspec.Struct, frozen=True):
    """What one pass said: every node's status, written or not, and what has happened."""

    statuses: Mapping[str, Status] = {}
    happenings: tuple[Happening, ...] = ()


def happenings(
    changes: Iterable[Change],
    tree: Tree,
    plan: Plan,
    results: Results,
    left: Iterable[QuotaNode] = (),
    refused: Mapping[str, str] | None = None,
) -> tuple[Happening, ...]:
    """What a pass brought about, at most `MOST_ALIKE` (and one on root) for each reason. `left`:
    the nodes that were deleted and have left Kueue. `refused`: what was not retired, and why.

    A subtree that freezes or thaws for one reason is told of once, at its top.
    """
    ordered = sorted(changes, key=lambda change: change.node.name)
    told: list[Happening] = list(_at_the_tops(filter(None, map(_soundness, ordered)), tree))
    for change in ordered:
        told.extend(filter(None, (_materialized(change), *_additions(change))))
        if change.node.name == ROOT:
            told.extend(_falls(change))
    told.extend(_repairs(tree, plan.repairs, results))
    told.extend(map(drained, left))
    told.extend(
        _of(tree.nodes[ROOT], NOT_RETIRED, f"{text} is not retired: {why}")
        for text, why in sorted((refused or {}).items())
    )
    return tuple(_bounded(told, tree))


def drained(node: QuotaNode) -> Happening:
    """Of a node that was deleted and has left Kueue."""
    return _of(node, DRAINED, "nothing of it is left in Kueue; the node goes")


# --- one status over another --------------------------------------------------------------------


def _of(node: QuotaNode, reason: str, message: str) -> Happening:
    return Happening(node.name, node.uid, reason, message)


def _conditions(change: Change, kind: str) -> tuple[Row, Row]:
    """A condition before and after; empty where there is none."""
    return stored(change.node.status).get(kind, {}), stored(change.status).get(kind, {})


def _soundness(change: Change) -> Happening | None:
    before, after = _conditions(change, READY)
    was_frozen, is_frozen = before.get("status") == "False", after.get("status") == "False"
    reason = str(after.get("reason"))
    if is_frozen and not (was_frozen and before.get("reason") == reason):
        return _of(change.node, reason, f"frozen: {after.get('message')}")
    if was_frozen and after.get("status") == "True":
        return _of(change.node, THAWED, f"sound again; it was {before.get('reason')}")
    return None


def _materialized(change: Change) -> Happening | None:
    """Kueue does not have a node any more as it is written, or has it again."""
    before, after = _conditions(change, MATERIALIZED)
    reason, former = str(after.get("reason")), str(before.get("reason"))
    was_told = before.get("status") == "False" and former not in _SILENT
    if after.get("status") == "False" and reason not in _SILENT:
        is_news = before.get("status") != "False" or former != reason
        return _of(change.node, reason, str(after.get("message"))) if is_news else None
    if after.get("status") == "True" and was_told:
        return _of(change.node, MATERIALIZED, f"Kueue has it as written; it was {former}")
    return None


def _additions(change: Change) -> Iterator[Happening]:
    """Conditions that are there only while they hold, and were not there before."""
    before = stored(change.node.status)
    for kind, row in sorted(stored(change.status).items()):
        is_told = row.get("reason") == DRAINING  # of Materialized
        if kind not in _STANDING and kind not in before and not is_told:
            yield _of(change.node, kind, str(row.get("message")))


def _falls(change: Change) -> Iterator[Happening]:
    before = capacity_from_status(change.node.status)
    for pair, row in capacity_from_status(change.status).items():
        if pair in before and row.mark < before[pair].mark:
            yield _of(change.node, CAPACITY_FELL, _fell(pair, before[pair].mark, row.mark))


def _fell(pair: Pair, former: object, mark: object) -> str:
    return f"the high-water mark of {pair} fell from {former} to {mark}"


# --- writes ---------------------------------------------------------------------------------------


def _repairs(tree: Tree, repairs: Mapping[Key, Drift], results: Results) -> Iterator[Happening]:
    """Whoever changed what the tree states should find out on the tree's own object."""
    for result in repaired(repairs, results):
        drift = repairs[result.key]
        what = f"{result.key}: put back {', '.join(drift.fields)}"
        who = repr(drift.manager) if drift.manager else "somebody unknown"
        for name in sorted(result.nodes & tree.nodes.keys()):
            yield _of(tree.nodes[name], DRIFT_REPAIRED, f"{what}, changed by {who}")


def repaired(repairs: Mapping[Key, Drift], results: Results) -> Iterator[Result]:
    """The writes that put something back. An object that needed several is told of once."""
    seen: set[Key] = set()
    for result in results.results:
        if result.outcome == "written" and result.key in repairs and result.key not in seen:
            seen.add(result.key)
            yield result


# --- keeping it short -----------------------------------------------------------------------------


def _at_the_tops(found: Iterable[Happening], tree: Tree) -> Iterator[Happening]:
    """One for each subtree that has one thing in common, with the number of nodes beneath."""
    alike: dict[tuple[str, str], dict[str, Happening]] = {}
    for one in found:
        alike.setdefault((one.reason, one.message), {})[one.node] = one
    for group in alike.values():
        beneath: dict[str, int] = {}
        for name in group:
            top = _top(name, group, tree)
            beneath[top] = beneath.get(top, 0) + (name != top)
        for top, more in beneath.items():
            one = group[top]
            text = f"{one.message} (and {more} beneath)" if more else one.message
            yield msgspec.structs.replace(one, message=text)


def _top(name: str, group: Mapping[str, Happening], tree: Tree) -> str:
    """The highest ancestor within the group. Of a loop it is the first by name."""
    path = [name]
    while (above := tree.parent(path[-1])) in group and above not in path:
        path.append(str(above))
    is_loop = tree.parent(path[-1]) in path
    return min(path[path.index(str(tree.parent(path[-1]))) :]) if is_loop else path[-1]


def _bounded(found: Iterable[Happening], tree: Tree) -> Iterator[Happening]:
    counts: dict[str, int] = {}
    for one in found:
        counts[one.reason] = counts.get(one.reason, 0) + 1
        if counts[one.reason] <= MOST_ALIKE:
            yield one
    root = tree.nodes.get(ROOT)
    for reason, count in counts.items():
        if count > MOST_ALIKE and root is not None:
            yield _of(root, reason, f"and {count - MOST_ALIKE} more nodes of the tree")
