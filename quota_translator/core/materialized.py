"""Whether Kueue has a node: the condition Materialized, from what every stage noted.

Rendering, planning and applying note their own faults. What is added here is what only the live
objects show: a queue that Kueue holds inactive, and objects that are not there yet.
"""

from collections.abc import Container, Iterable
from typing import Final

from quota_translator.core.actions import Action, Plan
from quota_translator.core.conditions import (
    ADMITTED,
    MATERIALIZED,
    MATERIALIZED_MESSAGE,
    Finding,
)
from quota_translator.core.kueue import is_ours
from quota_translator.core.names import CLUSTER_QUEUE, ROOT, Key
from quota_translator.core.notes import (
    FROZEN,
    KUEUE_UNAVAILABLE,
    PROGRESSING,
    QUEUE_INACTIVE,
    Note,
    foremost,
)
from quota_translator.core.render import Rendering
from quota_translator.core.verdict import Frozen, listed
from quota_translator.core.world import Observed, World

STOPPED: Final = "Stopped"  # Kueue's reason for a queue that a person stopped
_NO_STOP: Final = ("", "None")
_MOST_HELD: Final = 4  # named in one message


class Materialized:
    """Answers per node over one pass.

    `nodes` are the names in the tree; `notes` are those of applying; `written` are the objects
    whose planned write succeeded after the snapshot was taken.
    """

    def __init__(
        self,
        nodes: Container[str],
        rendering: Rendering,
        plan: Plan,
        world: World,
        manager: str,
        notes: Iterable[Note] = (),
        written: frozenset[Key] = frozenset(),
    ) -> None:
        self._world = world
        self._manager = manager
        self._notes: dict[str, list[Note]] = {}
        for note in (*rendering.notes, *plan.notes, *notes):
            # What is on its way is told from the plan and from what was written since, below.
            if note.reason != PROGRESSING:
                self._notes.setdefault(note.node, []).append(note)
        self._waiting = plan.waiting
        self._kinds: dict[str, set[str]] = {}
        self._queues: dict[str, list[Key]] = {}
        self._underway: dict[str, set[Key]] = {}
        self._look(rendering, written)
        for action in plan.actions:
            if action.key not in written or _is_interim(action, rendering):
                for node in action.nodes:
                    self._underway.setdefault(node, set()).add(action.key)
        self._held = _held(nodes, plan, world)
        self._zeros = _zeros(rendering)
        self._teams = rendering.queues.teams

    def _look(self, rendering: Rendering, written: frozenset[Key]) -> None:
        """Which objects each node has, and which of them are not there or wait for something."""
        # A team has many LocalQueues, and they share one set of nodes.
        kinds: set[tuple[frozenset[str], str]] = set()
        for key, wanted in rendering.desired.items():
            kinds.add((wanted.nodes, key.kind))
            seen = self._world.live.get(key)
            is_there = key in written or (seen is not None and is_ours(seen, self._manager))
            if not is_there or key in self._waiting:
                for node in wanted.nodes:
                    self._underway.setdefault(node, set()).add(key)
            if key.kind == CLUSTER_QUEUE:
                for node in wanted.nodes:
                    self._queues.setdefault(node, []).append(key)
        for of_nodes, kind in kinds:
            for node in of_nodes:
                self._kinds.setdefault(node, set()).add(kind)

    def finding(self, node: str, frozen: Frozen | None) -> Finding:
        """True only when everything is written and Kueue's Active is not False."""
        if frozen is not None:
            return Finding(
                MATERIALIZED,
                False,
                FROZEN,
                f"held at its last good state, nothing is written or removed ({frozen.reason})",
            )
        queues = self._queues.get(node, [])
        found = [*self._notes.get(node, ()), *self._inactive(node, queues)]
        first = foremost(found or self._underway_notes(node))
        if first is not None:
            return Finding(MATERIALIZED, False, first.reason, first.message)
        return Finding(
            MATERIALIZED, True, ADMITTED, MATERIALIZED_MESSAGE + self._more(node, queues)
        )

    def _inactive(self, node: str, queues: list[Key]) -> Iterable[Note]:
        for key in queues:
            queue = self._ours(key)
            if queue is not None and (why := _why_inactive(queue)):
                yield Note(node, QUEUE_INACTIVE, why)

    def _more(self, node: str, queues: list[Key]) -> str:
        """What is no fault, but must be seen: people's brake, and what cannot go yet."""
        stops = {key: queue for key in queues if (queue := self._ours(key)) and _is_stopped(queue)}
        told = [_stopped(key, queue) for key, queue in stops.items()]
        told += [
            f"{key} has what people set: {', '.join(queue.peoples)}"
            for key in queues
            if (queue := self._ours(key)) and queue.peoples
        ]
        told += self._zeros.get(node, ())
        if (team := self._teams.get(node)) and team.outside:
            told.append(
                f"of spec.namespaces not enrolled, or not there: {listed(team.outside)}; nothing "
                "can be submitted from there"
            )
        held = self._held.get(node, [])
        told += [f"no longer wanted and still there: {one}" for one in held[:_MOST_HELD]]
        told += [f"and {len(held) - _MOST_HELD} more"] if len(held) > _MOST_HELD else []
        return "".join(f"; {one}" for one in told)

    def _underway_notes(self, node: str) -> list[Note]:
        kinds = self._kinds.get(node, set())
        unread = sorted(kinds - self._world.known)
        if unread:
            told = f"{', '.join(unread)} objects cannot be read, so none is written"
            return [Note(node, KUEUE_UNAVAILABLE, told)]
        if CLUSTER_QUEUE in kinds and _are_namespaces_unread(self._world):
            told = "namespaces cannot be read, so no LocalQueue is written or deleted"
            return [Note(node, KUEUE_UNAVAILABLE, told)]
        underway = sorted(self._underway.get(node, ()))
        waiting = [self._waiting[key] for key in underway if key in self._waiting]
        if waiting:
            return [Note(node, PROGRESSING, waiting[0])]
        if underway:
            more = f" and {len(underway) - 1} more" if len(underway) > 1 else ""
            return [Note(node, PROGRESSING, f"{underway[0]}{more} being written")]
        if not kinds:
            return [Note(node, PROGRESSING, "no Kueue object is rendered for this node yet")]
        return []

    def _ours(self, key: Key) -> Observed | None:
        live = self._world.live.get(key)
        return live if live is not None and is_ours(live, self._manager) else None


def _are_namespaces_unread(world: World) -> bool:
    """On a cluster. Files without a namespace have none, and nobody asks what is served there."""
    return world.namespaces is None and world.facts.served is not None


def _why_inactive(queue: Observed) -> str:
    if queue.deleting:  # Kueue 0.17 goes on reporting Active=True for such a queue
        return f"{queue.key} is being deleted and admits nothing new; Kueue ends it when idle"
    if queue.active is not False or queue.active_reason == STOPPED:
        return ""
    told = f": {queue.active_message}" if queue.active_message else ""
    return f"Kueue holds {queue.key} inactive ({queue.active_reason or 'no reason given'}){told}"


def _stopped(key: Key, queue: Observed) -> str:
    """Kueue leaves a stopped queue out of what it looks at, and with it the work to be evicted."""
    policy = queue.stop_policy or "unknown"
    who = "as spec.stopPolicy says" if "stopPolicy" in queue.spec else "by a person"
    told = f"{key} is stopped {who} (stopPolicy {policy}): nothing new is admitted"
    if policy != "HoldAndDrain":
        told += (
            "; what runs goes on, keeps what it borrowed, and cannot be evicted by those who lent "
            "it, who need HoldAndDrain or patience"
        )
    return told


def _is_stopped(queue: Observed) -> bool:
    return queue.stop_policy not in _NO_STOP or (
        queue.active is False and queue.active_reason == STOPPED
    )


def _is_interim(action: Action, rendering: Rendering) -> bool:
    """A write that has stages, and this is not the last."""
    wanted = rendering.desired.get(action.key)
    return action.verb != "delete" and wanted is not None and action.spec != wanted.spec


def _zeros(rendering: Rendering) -> dict[str, list[str]]:
    """Pairs that a team dropped and still uses. How much is left out: it changes all the time."""
    found: dict[str, list[str]] = {}
    for (node, pair), use in sorted(rendering.held.items(), key=lambda item: item[0]):
        if use:
            told = f"{pair} is budgeted no more and stays in the queue at 0 until nothing uses it"
            found.setdefault(node, []).append(told)
    return found


def _held(nodes: Container[str], plan: Plan, world: World) -> dict[str, list[str]]:
    """What cannot be deleted yet, by the node that tells: its own if there is one, else root."""
    found: dict[str, list[str]] = {}
    leaving = {node.name for node in world.quotas or () if node.deleting}  # they tell of theirs
    for key, why in sorted(plan.held.items()):
        live = world.live.get(key)
        is_told = live is not None and (live.quota in nodes or live.quota in leaving)
        owner = live.quota if live is not None and is_told else ROOT
        found.setdefault(owner or ROOT, []).append(f"{key}: {why}")
    return found
