"""What one pass of planning works on, and what it has decided so far."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from quota_translator.core.compare import Comparison
from quota_translator.core.drift import has_drifted, is_contested, pause_ends, recalled
from quota_translator.core.interim import parent_in
from quota_translator.core.kueue import parent_of
from quota_translator.core.links import Links, cohort
from quota_translator.core.livesums import Amounts, LiveSums, caps_of
from quota_translator.core.names import CLUSTER_QUEUE, COHORT, Key, Pair
from quota_translator.core.notes import DRIFT_CONTESTED, MATERIALIZATION_FAILED, Note
from quota_translator.core.settling import unsettled
from quota_translator.core.tree import Tree
from quota_translator.core.world import Clock, Desired, Drift, Memory, Settling, World


class Scene:
    """The world as planning sees it, with the decisions taken so far in this pass."""

    def __init__(
        self,
        desired: Mapping[Key, Desired],
        kept: frozenset[str],
        tree: Tree,
        world: World,
        memory: Memory,
        clock: Clock,
        manager: str,
        compared: Comparison,
    ) -> None:
        self.desired = desired
        self.kept = kept
        self.live = world.live
        self.memory = memory
        self.clock = clock
        self.manager = manager
        self.compared = compared
        self.drift = recalled(memory.drift, clock)
        self.created: set[Key] = set()  # Cohorts and ClusterQueues that this plan creates
        self.moved: set[Key] = set()
        self._brought: dict[Key, tuple[frozenset[str], Amounts]] = {}
        self.yielded: dict[Key, dict[Pair, int]] = {}  # shares lowered so that something can move
        self.repairs: dict[Key, Drift] = {}
        self.waiting: dict[Key, str] = {}
        self.notes: set[Note] = set(compared.notes)
        self.wakes: set[float] = set()
        self._tree = tree
        # Who can tell of an object: nodes of the tree, and those that leave it.
        self._tellers = tree.nodes.keys() | {node.name for node in world.quotas or ()}
        self._placed: dict[str, bool] = {}
        self._depths: dict[Key, int] = {}

    @cached_property
    def settling(self) -> dict[Key, Settling]:
        return unsettled(self.memory.settling, self.live, self.clock)

    @cached_property
    def sums(self) -> LiveSums:
        """Built only when something of weight differs: it looks at every cell in Kueue."""
        caps = caps_of(self._tree, self.desired)
        return LiveSums(self.live, self.settling, caps, self.manager)

    @cached_property
    def standing(self) -> Links:
        """Who stands beneath whom in the store; what was true a moment ago does not count."""
        links = Links()
        for key, seen in self.live.items():
            parent = parent_of(seen) if key.kind in (COHORT, CLUSTER_QUEUE) else None
            if parent:
                links.link(key, (parent,))
        return links

    # --- places ---------------------------------------------------------------------------

    def parent(self, key: Key) -> str | None:
        """The Cohort that the tree wants the object beneath."""
        return parent_in(key, self.desired[key].spec)

    def chain(self, key: Key) -> tuple[str, ...]:
        """The Cohorts that the object shall stand beneath, the nearest first."""
        found: list[str] = []
        above = self.parent(key)
        while above is not None and above not in found:
            found.append(above)
            above = self.parent(cohort(above)) if cohort(above) in self.desired else None
        return tuple(found)

    def depth(self, key: Key) -> int:
        if key not in self._depths:
            self._depths[key] = len(self.chain(key)) if key in self.desired else 0
        return self._depths[key]

    def is_placed(self, name: str | None) -> bool:
        """The Cohort and all above it are ours and stand where the tree wants them."""
        if name is None or cohort(name) in self.created:
            return True
        if name not in self._placed:
            self._placed[name] = False  # for cycles among what is wanted
            found = self.compared.present.get(cohort(name))
            if found is not None:
                above = parent_in(found.wanted.key, found.wanted.spec)
                self._placed[name] = parent_of(found.live) == above and self.is_placed(above)
        return self._placed[name]

    def is_in_place(self, key: Key) -> bool:
        """The object itself stands, or is put by this plan, where the tree wants it."""
        if key in self.created or key in self.moved:
            return True
        at = parent_of(self.live[key])
        return at == self.parent(key) and self.is_placed(at)

    def groups_over(self, key: Key) -> frozenset[str]:
        """Whose room a grow of this object takes: all above it, and an enforced group's own."""
        above = self.sums.links.above(key)
        if key.kind == COHORT:
            caps = self.sums.caps.get(key.name, {})
            return above | ({key.name} if any(cap.enforced for cap in caps.values()) else set())
        return above

    def accept(self, key: Key, groups: frozenset[str], brought: Amounts) -> None:
        """Create or move the object in this plan: it brings these amounts to these groups."""
        parent = self.parent(key)
        self.sums.reserve(groups, brought)
        self.sums.links.link(key, (parent,) if parent else ())
        self._brought[key] = (groups, brought)
        (self.created if key in self.compared.missing else self.moved).add(key)

    def give_up(self, key: Key) -> None:
        """The write that was accepted is not sent after all."""
        if key in self._brought:
            groups, brought = self._brought.pop(key)
            self.sums.reserve(groups, brought, -1)
        self.created.discard(key)
        self.moved.discard(key)

    # --- what stops a write ---------------------------------------------------------------

    def is_refused(self, key: Key, spec: Mapping[str, Any]) -> bool:
        """The server has refused just this write; says so on the nodes."""
        refusal = self.memory.refused.get(key)
        if refusal is None or refusal.spec != spec:
            return False
        self.wait(key, f"{key} was refused: {refusal.message}", MATERIALIZATION_FAILED)
        return True

    def is_paused(self, key: Key) -> bool:
        """Somebody keeps undoing our repairs of this object: the next one is not due yet."""
        found = self.compared.present.get(key)
        entry = self.drift.get(key)
        if found is None or not has_drifted(found.wanted, found.live, self.memory.converged):
            return False
        if pause_ends(entry) <= self.clock.steady:
            return False
        self.wakes.add(pause_ends(entry))
        return True

    def note_disputes(self) -> None:
        for key in self.desired.keys() & (self.drift.keys() | self.repairs.keys()):
            entry = self.repairs.get(key) or self.drift[key]
            if is_contested(entry):
                who = entry.manager or "somebody"
                what = ", ".join(entry.fields)
                text = (
                    f"{who} keeps changing {what} of {key}, which the tree states; "
                    f"put back {len(entry.at)} times, from now on with pauses: change the tree, "
                    f"or stop {who}"
                )
                self.note(key, DRIFT_CONTESTED, text)

    # --- saying it ------------------------------------------------------------------------

    def nodes(self, key: Key) -> frozenset[str]:
        """The nodes that tell of an object: those that it comes from, or is labelled with."""
        wanted = self.desired.get(key)
        if wanted is not None:
            return wanted.nodes
        return frozenset({self.live[key].quota or ""} & self._tellers)

    def has_node(self, key: Key) -> bool:
        """Whether the node that a live object is labelled with is of the tree."""
        return self.live[key].quota in self._tree.nodes

    def note(self, key: Key, reason: str, text: str) -> None:
        self.notes.update(Note(node, reason, text) for node in self.nodes(key))

    def wait(self, key: Key, text: str, reason: str) -> None:
        self.waiting[key] = text
        self.note(key, reason, text)
