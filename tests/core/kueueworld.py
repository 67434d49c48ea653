"""A store and a Kueue that is half a step behind it, for the tests of planning.

The store has every write at once. Kueue takes specs later, object by object and in any order: a
ClusterQueue says so (Active.observedGeneration), a Cohort is taken a second later at the latest.
After every single write and every single step of Kueue the promises of planning are checked, on
what the store shows and on what Kueue believes.
"""

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

import msgspec

from quota_translator.core.actions import Action, Plan
from quota_translator.core.arithmetic import QuotaTree, from_live, subtree_bound
from quota_translator.core.check import Frozen
from quota_translator.core.drift import agreed, recalled
from quota_translator.core.kueue import is_ours, parent_of
from quota_translator.core.livesums import Cap, Caps
from quota_translator.core.names import CLUSTER_QUEUE, COHORT, ROOT, Key, Pair
from quota_translator.core.plan import plan
from quota_translator.core.render import Rendering, render
from quota_translator.core.settling import settle_after, unsettled
from quota_translator.core.tree import Tree, grow
from quota_translator.core.world import Memory, Observed, QuotaNode, World
from tests.core.rendering import BARE, MANAGER, a_world, an_option, at

Objects = dict[Key, Observed]
Bounds = dict[tuple[str, Pair], int | None]


class KueueWorld:
    """Objects in the store, what Kueue believes of them, and a controller's memory."""

    def __init__(self, live: Iterable[Observed], random: Random | None = None) -> None:
        self.store: Objects = {seen.key: seen for seen in live}
        self.believed: Objects = dict(self.store)
        self.memory = Memory()
        self.steady = 100.0
        self.options = an_option(**BARE)
        self.random = random or Random(0)
        self.writes: list[Action] = []
        self.check: Callable[[], None] = lambda: None
        self.refuse: Callable[[Action], str | None] = lambda _: None

    # --- the controller -------------------------------------------------------------------

    def world(self, nodes: Iterable[QuotaNode], **fields: Any) -> World:
        return a_world(*nodes, live=self.store.values(), **fields)

    def look(
        self, nodes: Iterable[QuotaNode], frozen: Iterable[str] = (), **fields: Any
    ) -> tuple[Tree, Rendering, Plan]:
        """Plan once; nothing is written."""
        nodes = tuple(nodes)
        tree, world = grow(nodes), self.world(nodes, **fields)
        marks = {name: Frozen("CapacityExceeded", "too much", name) for name in frozen}
        rendering = render(tree, marks, world, self.memory, self.options, self.clock)
        planned = plan(
            rendering.desired, rendering.kept, tree, world, self.memory, self.options, self.clock
        )
        return tree, rendering, planned

    @property
    def clock(self) -> Any:
        return at(self.steady)

    def one_pass(
        self, nodes: Iterable[QuotaNode], frozen: Iterable[str] = (), cut: bool = False
    ) -> Plan:
        """Plan, watch the promises while all of it (or, cut, a part) is carried out, remember."""
        _, rendering, planned = self.look(nodes, frozen)
        before = dict(self.store)
        actions = list(planned.actions)
        if cut:
            actions = actions[: self.random.randint(0, len(actions))]
        done = list(self.carry_out(actions))
        settling = unsettled(self.memory.settling, before, self.clock)
        written = {action.key for action, _ in done}
        repairs = {key: drift for key, drift in planned.repairs.items() if key in written}
        self.memory = msgspec.structs.replace(
            self.memory,
            settling=settle_after(settling, done, self.clock),
            converged=agreed(self.memory.converged, rendering.desired, before, written),
            drift=recalled({**self.memory.drift, **repairs}, self.clock),
        )
        return planned

    def carry_out(self, actions: list[Action]) -> Iterable[tuple[Action, Observed | None]]:
        """One write after the other: stage by stage, in any order within one."""
        for stage in sorted({action.stage for action in actions}):
            todo = [action for action in actions if action.stage == stage]
            self.random.shuffle(todo)
            while todo:
                ready = [action for action in todo if self._is_ready(action)]
                if not ready:
                    break  # what they hang on was not written
                todo.remove(ready[0])
                yield ready[0], self.write(ready[0])

    def _is_ready(self, action: Action) -> bool:
        if action.requires is None:
            return True
        parent = self.store.get(action.requires)
        return parent is not None and is_ours(parent, MANAGER) and not parent.deleting

    # --- the store ------------------------------------------------------------------------

    def write(self, action: Action) -> Observed | None:
        self.writes.append(action)
        former = self.store.get(action.key)
        if action.verb == "delete":
            assert former is not None
            assert former.uid == action.uid
            del self.store[action.key]
        elif action.verb == "create":
            assert former is None, f"{action.key} exists"
            self.store[action.key] = Observed(
                action.key,
                uid=f"uid-{len(self.writes)}",
                generation=1,
                managed_by=MANAGER,
                quota=action.quota,
                part=action.part,
                spec=action.spec,
            )
        else:
            assert former is not None
            assert former.uid == action.uid
            spec = dict(former.spec)
            for field in action.fields:
                spec.pop(field, None)
                if field in action.spec:
                    spec[field] = action.spec[field]
            assert spec == action.spec, "the fields that were named are not those that differ"
            self.store[action.key] = msgspec.structs.replace(
                former, spec=spec, generation=former.generation + 1
            )
        self.check()
        self._maybe_take()
        return self.store.get(action.key)

    # --- Kueue ----------------------------------------------------------------------------

    def _maybe_take(self) -> None:
        behind = self.behind()
        for key in self.random.sample(behind, len(behind)):
            if self.random.random() < 0.3:
                self.take(key)

    def behind(self) -> list[Key]:
        """The objects of which Kueue believes something that is no longer so."""
        keys = self.store.keys() | self.believed.keys()
        return sorted(key for key in keys if self._is_behind(key))

    def _is_behind(self, key: Key) -> bool:
        seen, believed = self.store.get(key), self.believed.get(key)
        if seen is None or believed is None:
            return True
        return seen.generation != believed.generation or (
            key.kind == CLUSTER_QUEUE and seen.active_generation != seen.generation
        )

    def take(self, key: Key) -> None:
        """Kueue takes the spec, or the end, of one object."""
        if key in self.store:
            seen = self.store[key]
            if key.kind == CLUSTER_QUEUE:
                self.store[key] = msgspec.structs.replace(
                    seen, active=True, active_generation=seen.generation
                )
            self.believed[key] = self.store[key]
        else:
            del self.believed[key]
        self.check()

    def wait(self, seconds: float = 1.0, *, queues: bool = True) -> None:
        """Time passes: Kueue takes every Cohort and every end, and the queues if asked to."""
        self.steady += seconds
        for key in self.behind():
            if queues or key.kind != CLUSTER_QUEUE or key not in self.store:
                self.take(key)

    def restart(self) -> None:
        """The controller starts anew, without memory; meanwhile Kueue has taken every move."""
        self.wait(2.0, queues=False)
        for key in self.behind():
            believed = self.believed.get(key)
            if believed is None or parent_of(believed) != parent_of(self.store[key]):
                self.take(key)
        self.memory = Memory(refused=self.memory.refused)


# --- what is promised -------------------------------------------------------------------------


def bounds(objects: Mapping[Key, Observed], caps: Caps) -> Bounds:
    """How much each enforced group can hold at most, by Kueue's arithmetic.

    None: nothing holds it, because its Cohort stands beneath another and states no limit.
    """
    pairs = {pair for row in caps.values() for pair, cap in row.items() if cap.enforced}
    trees = {pair: from_live(objects, pair) for pair in pairs}
    return {
        (name, pair): _bound(trees[pair], Key(COHORT, "", name))
        for name, row in caps.items()
        for pair, cap in row.items()
        if cap.enforced
    }


def _bound(tree: QuotaTree, top: Key) -> int | None:
    """Of a Cohort that nobody names there is nothing to hold."""
    return subtree_bound(tree, top) if top in tree.members else 0


def caps_in(tree: Tree) -> Caps:
    """The budgets of all groups that root reaches, frozen ones too, in whole units."""
    caps: dict[str, dict[Pair, Cap]] = {}
    for name in tree.order:
        one = tree.nodes[name]
        for budget in one.budgets if one.role == COHORT else ():
            limit = budget.borrowing_limit.ceil() if budget.borrowing_limit else 0
            cap = Cap(budget.nominal.ceil(), limit, bool(budget.enforced) and name != ROOT)
            caps.setdefault(name, {})[budget.pair] = cap
    return caps


def climb(objects: Mapping[Key, Observed], key: Key) -> list[str]:
    """The Cohorts above an object, the nearest first; ends where it would come round again."""
    found: list[str] = []
    seen: Observed | None = objects[key]
    while seen is not None:
        above = parent_of(seen)
        if above is None or above in found:
            return found
        found.append(above)
        seen = objects.get(Key(COHORT, "", above))
    return found


def cyclic(objects: Mapping[Key, Observed]) -> set[str]:
    """The Cohorts that stand beneath themselves."""
    return {key.name for key in objects if key.kind == COHORT and key.name in climb(objects, key)}


class Promises:
    """Checked after each step: call it with the world, and it asserts what must never be broken."""

    def __init__(self, world: KueueWorld, tree: Tree) -> None:
        self._world = world
        self._caps = caps_in(tree)
        self._views = {"store": world.store, "Kueue": world.believed}
        self._before = {view: bounds(seen, self._caps) for view, seen in self._views.items()}
        self._cycles = {view: cyclic(seen) for view, seen in self._views.items()}
        self._links = {key: parent_of(seen) for key, seen in world.store.items()}
        world.check = self

    def __call__(self) -> None:
        for view, objects in self._views.items():
            now = bounds(objects, self._caps)
            for (group, pair), bound in now.items():
                before, cap = self._before[view][group, pair], self._caps[group][pair]
                if before is None:
                    continue  # held by nothing when this began
                assert bound is not None, f"{view}: nothing holds {group} to {pair} any more"
                most = max(before, cap.nominal + cap.borrowing)
                assert bound <= most, f"{view}: {group} may hold {bound}, not {most}, of {pair}"
            self._before[view] = now
            assert cyclic(objects) <= self._cycles[view], f"{view}: a new cycle"
        self._check_parents()

    def expect_reported(self, rendering: Rendering, planned: Plan) -> None:
        """In the end a written group holds more than it may only where that is told.

        On the group (EnvelopeOverdrawn), or on what is beneath it and waits to leave or to shrink.
        """
        store = self._world.store
        waiting = {name for key in planned.waiting if key in store for name in climb(store, key)}
        waiting |= {key.name for key in planned.waiting}
        for (group, pair), bound in bounds(store, self._caps).items():
            key, cap = Key(COHORT, "", group), self._caps[group][pair]
            seen = store.get(key)
            if key not in rendering.desired or seen is None or not is_ours(seen, MANAGER):
                continue
            if seen.deleting or (bound is not None and bound <= cap.nominal + cap.borrowing):
                continue
            told = (group, pair) in rendering.overdrawn or group in waiting
            assert told, f"{group} may hold {bound} of {pair}, and nothing is said"

    def _check_parents(self) -> None:
        for key, seen in self._world.store.items():
            parent = parent_of(seen)
            if key.kind in (COHORT, CLUSTER_QUEUE) and parent and parent != self._links.get(key):
                above = self._world.store.get(Key(COHORT, "", parent))
                assert above is not None, f"{key} was put beneath {parent}, which does not exist"
                assert is_ours(above, MANAGER), f"{key} was put beneath a foreign {parent}"
        self._links = {key: parent_of(seen) for key, seen in self._world.store.items()}
