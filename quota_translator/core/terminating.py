"""What is said on a node that was deleted and whose objects have not left Kueue yet.

Everything else of its status stays as it was last said: nobody judges it any more.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from quota_translator.core.compare import NEEDS, absence
from quota_translator.core.conditions import (
    DEGRADED,
    MATERIALIZED,
    READY,
    TERMINATING,
    Finding,
    conditions,
    stored,
)
from quota_translator.core.counted import Holdings
from quota_translator.core.holder import FIELD, claimed
from quota_translator.core.kueue import cells, is_ours
from quota_translator.core.lifecycle import is_absent, released
from quota_translator.core.names import (
    CLUSTER_QUEUE,
    COVER_FLAVOR,
    KINDS,
    RESOURCE_FLAVOR,
    ROOT,
    Key,
    Pair,
)
from quota_translator.core.notes import DRAINING, KUEUE_UNAVAILABLE, PROGRESSING, Note, foremost
from quota_translator.core.options import Options
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.statusdiff import OWNED
from quota_translator.core.translate import Translation
from quota_translator.core.usage import authored
from quota_translator.core.verdict import listed
from quota_translator.core.world import Clock, Holding, Observed, QuotaNode, World

Status = dict[str, Any]
WAITING_FOR_CHILDREN: Final = "WaitingForChildren"
_NAMED: Final = 3


class Leaving:
    """Answers per leaving node over one pass. `notes` are those of applying and releasing."""

    def __init__(
        self,
        found: Translation,
        world: World,
        options: Options,
        notes: Iterable[Note] = (),
        holdings: Holdings | None = None,
    ) -> None:
        self._found, self._world, self._options = found, world, options
        self._holdings = holdings or {}
        self._notes: dict[str, list[Note]] = {}
        for note in (*found.plan.notes, *notes):
            if note.node in found.roster.leaving and note.reason != PROGRESSING:
                self._notes.setdefault(note.node, []).append(note)
        self._left: dict[str, list[Observed]] = {}
        for live in world.live.values() if found.roster.leaving else ():
            name = live.quota or ""
            if name in found.roster.leaving and is_ours(live, options.materialize.manager):
                self._left.setdefault(name, []).append(live)

    def statuses(self, clock: Clock) -> dict[str, Status]:
        leaving = self._found.roster.leaving
        return {name: self._status(node, clock) for name, node in leaving.items()}

    def _status(self, node: QuotaNode, clock: Clock) -> Status:
        rows = stored(node.status)
        status = {field: node.status[field] for field in OWNED if field in node.status}
        status |= {"observedGeneration": node.generation}
        status["conditions"] = [dict(rows[kind]) for kind in (READY, DEGRADED) if kind in rows]
        status["conditions"] += conditions(node, self._findings(node), clock)
        holder = self._found.memory.holder
        if node.name == ROOT and holder is not None:
            status[FIELD] = claimed(node.status, holder, clock)
        return status

    def _findings(self, node: QuotaNode) -> Iterator[Finding]:
        notes = self._notes.get(node.name) or [*self._unread(node), *self._draining(node)]
        first = foremost(notes)
        assert first is not None, "a leaving node always has something to say"
        if self._options.materialize.enabled:
            yield Finding(MATERIALIZED, False, first.reason, first.message)
        when = f"it was deleted at {node.deleted}: " if node.deleted else "it was deleted: "
        yield Finding(TERMINATING, True, DRAINING, when + first.message)

    # --- what holds it --------------------------------------------------------------------

    def _unread(self, node: QuotaNode) -> Iterator[Note]:
        unread = [k for k in KINDS if k not in self._world.known and not is_absent(k, self._world)]
        if unread:
            text = f"Kueue's {' and '.join(unread)} objects are {absence(unread, self._world)}"
            text += ": nobody knows what of it is left"
            yield Note(node.name, KUEUE_UNAVAILABLE, text)
            return
        left = sorted({live.key.kind for live in self._left.get(node.name, ())}, key=KINDS.index)
        lacking = [k for k in KINDS if k not in self._world.known]
        stuck = [kind for kind in left if set(NEEDS[kind]) & set(lacking)]
        if stuck:
            text = f"Kueue's {' and '.join(lacking)} objects are {absence(lacking, self._world)}"
            text += f": its {' and '.join(stuck)} cannot be deleted before they are back"
            yield Note(node.name, KUEUE_UNAVAILABLE, text)

    def _draining(self, node: QuotaNode) -> Iterator[Note]:
        left = sorted(self._left.get(node.name, ()), key=lambda live: _place(live.key))
        told = [self._of(node, live) for live in left[:_NAMED]]
        told += [f"and {len(left) - _NAMED} more objects"] if len(left) > _NAMED else []
        if not told:
            others = released(node)
            told = ["nothing of it is left in Kueue"]
            told += [f"what holds it are finalizers of others: {listed(others)}"] if others else []
        yield Note(node.name, DRAINING, "; ".join(told))

    def _of(self, node: QuotaNode, live: Observed) -> str:
        key = live.key
        if key in self._found.plan.held:
            return self._found.plan.held[key]
        if key.kind == CLUSTER_QUEUE and live.deleting:
            return f"{key} is being deleted; {self._use(node, live)}"
        if key == Key(RESOURCE_FLAVOR, "", COVER_FLAVOR) and (users := self._cover_users()):
            return f"{key} is still listed by {listed(users, most=_NAMED)}"
        return f"{key} is being deleted" if live.deleting else f"{key} is still there"

    def _cover_users(self) -> list[str]:
        return sorted(
            str(key)
            for key, live in self._world.live.items()
            if key.kind == CLUSTER_QUEUE
            and any(pair.flavor == COVER_FLAVOR for pair in cells(live.spec))
        )

    def _use(self, node: QuotaNode, queue: Observed) -> str:
        """How many workloads keep a queue. Kueue does not say more of one that is being deleted."""
        held = self._holdings.get(queue.key.name)
        if held is not None:
            return _named_use(node, held)
        totals = {pair: amount.total for pair, amount in (queue.reservation or {}).items()}
        if not queue.reserving_workloads:
            return "it goes when no workload holds anything of it"
        return (
            f"{_workloads(queue.reserving_workloads)} held {_amounts(node, totals)} when Kueue "
            "counted them last, which it does no more; it goes when they have ended (kubectl get "
            "workloads -A)"
        )


def staying_finding(name: str, text: str) -> Finding:
    """The condition of a deleted node that is still of the tree."""
    return Finding(TERMINATING, True, WAITING_FOR_CHILDREN, text)


def _place(key: Key) -> tuple[int, Key]:
    """Queues first: they are what takes long."""
    return (key.kind != CLUSTER_QUEUE, key)


def _named_use(node: QuotaNode, held: tuple[Holding, ...]) -> str:
    if not held:
        return "no workload holds anything of it any more, and it goes in a moment"
    totals: dict[Pair, Quantity] = {}
    for one in held:
        for pair, amount in one.amounts.items():
            totals[pair] = totals.get(pair, ZERO) + amount
    oldest = sorted(held, key=lambda one: (one.since, one.name))[:_NAMED]
    names = ", ".join(f"{one.name} since {one.since}" for one in oldest)
    more = f" and {len(held) - _NAMED} more" if len(held) > _NAMED else ""
    return (
        f"{_workloads(len(held))} still hold{'s' if len(held) == 1 else ''} "
        f"{_amounts(node, totals)}: {names}{more}; it goes when they have ended"
    )


def _workloads(number: int) -> str:
    return f"{number} workload" if number == 1 else f"{number} workloads"


def _amounts(node: QuotaNode, totals: Mapping[Pair, Quantity]) -> str:
    """What the node budgets, without cpu and the like; everything where that is nothing."""
    held = {pair: amount for pair, amount in sorted(totals.items()) if amount}
    named = {pair: amount for pair, amount in held.items() if pair in authored(node)} or held
    told = listed([f"{amount} {pair}" for pair, amount in named.items()])
    return told or "something of it"
