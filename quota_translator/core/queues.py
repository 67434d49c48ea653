"""A team into its queues: its budgets, the cover resources, and pairs that are leaving."""

from collections.abc import Callable, Iterable, Mapping
from operator import is_
from typing import Any, Final

import msgspec

from quota_translator.core import notes
from quota_translator.core.groups import Cell, merge
from quota_translator.core.held import HOLD_SECONDS, Held, held_pairs
from quota_translator.core.kueue import cells, is_ours
from quota_translator.core.limits import exceeded, most_flavors, shapes_of
from quota_translator.core.names import CLUSTER_QUEUE, COVER_FLAVOR, LOCAL_QUEUE, Key, Pair
from quota_translator.core.namespaces import enrolled, fits, named, queue_selector
from quota_translator.core.notes import Note
from quota_translator.core.options import MaterializeOptions
from quota_translator.core.preemption import Preemptions
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.world import (
    Budget,
    Clock,
    Desired,
    Flavor,
    Memory,
    Observed,
    QuotaNode,
    World,
)

# Kueue counts a workload in its LocalQueue's status about a second after it came.
IDLE_AFTER: Final = HOLD_SECONDS


class TeamQueue(msgspec.Struct, frozen=True):
    """A team's ClusterQueue as it should be, and what is to be said of it."""

    desired: Desired
    node: QuotaNode
    notes: tuple[Note, ...] = ()
    held: Held = Held()
    uses_cover: bool = False  # lists the controller's own cover flavor
    local_queues: Mapping[Key, Desired] = {}
    outside: tuple[str, ...] = ()  # namespaces that the team names and nobody can submit from
    # The very objects that all of this was made from; None where time or use had a say in it.
    made_from: tuple[object, ...] | None = None

    def is_of(self, inputs: tuple[object, ...]) -> bool:
        """Whether rendering from these objects would give the same again."""
        former = self.made_from or ()
        return len(former) == len(inputs) and all(map(is_, former, inputs))


class Queues(msgspec.Struct, frozen=True):
    """The queues of all teams, and what else they were made from: settings and namespaces."""

    settings: tuple[object, ...] = ()
    teams: Mapping[str, TeamQueue] = {}


class _Budgets(msgspec.Struct, frozen=True):
    """A team's budgets by what became of their flavors; of two on one pair the first counts."""

    usable: tuple[Budget, ...]
    ending: tuple[Budget, ...]
    missing: tuple[Budget, ...]


class QueueRenderer:
    """Renders the ClusterQueues and LocalQueues of one pass."""

    def __init__(
        self,
        world: World,
        memory: Memory,
        options: MaterializeOptions,
        clock: Clock,
        preemptions: Preemptions,
    ) -> None:
        self._preemptions = preemptions
        self._world = world
        self._memory = memory
        self._options = options
        self._clock = clock
        self._everywhere = queue_selector(options)
        self._most_flavors = most_flavors(world.facts.kueue_release)
        self._namespaces = enrolled(world.namespaces or (), options)
        self._names = frozenset(namespace.name for namespace in self._namespaces)
        self._covers: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        self._flavors: Mapping[str, Flavor] | None = None
        if world.flavors is not None:
            self._flavors = {flavor.name: flavor for flavor in world.flavors}

    def render(self, nodes: Iterable[QuotaNode]) -> Queues:
        """The queues of these teams. Those of the last pass are taken again where they can be."""
        settings = (self._options, self._most_flavors, self._namespaces)
        former = self._memory.rendered
        before = former.teams if former is not None and former.settings == settings else {}
        return Queues(settings, {node.name: self._again(node, before) for node in nodes})

    def _again(self, node: QuotaNode, before: Mapping[str, TeamQueue]) -> TeamQueue:
        live = self._live(node.name)
        if self._flavors is None:
            return self._team(node, live, None)
        named = [self._flavors.get(budget.flavor) for budget in node.budgets]
        preemption = self._preemptions.of(node.name)
        inputs = (node, preemption, live.spec if live is not None else None, *named)
        former = before.get(node.name)
        return former if former and former.is_of(inputs) else self._team(node, live, inputs)

    def _team(
        self, node: QuotaNode, live: Observed | None, inputs: tuple[object, ...] | None
    ) -> TeamQueue:
        """One team. Without a usable flavor it has the cover alone, or nothing."""
        budgets = self._sorted_out(node)
        cover = self._cover(node)
        wide = self._has_topology(budgets.usable, cover, live)
        wanted = _wanted(node.name, budgets.usable, cover if wide else {}, wide)
        apart = [] if wide else self._cover_groups(cover)
        held = self._held(node, budgets.usable, wanted, live)
        order = [*(b.flavor for b in budgets.usable), *sorted(c.pair.flavor for c in held.cells)]
        # Nothing that is held shares a resource or a flavor with a cover that stands apart.
        groups = merge([*wanted, *held.cells], order) + apart
        if held.cells and exceeded(shapes_of(groups), self._most_flavors):
            # Kueue would refuse the queue, and with it what the team is to have now.
            held, groups = Held(), merge(wanted, order) + apart
        desired = self._desired(node, groups)
        lasts = not held.cells and _is_lasting(live, desired)
        return TeamQueue(
            desired=desired,
            node=node,
            notes=_notes(node.name, budgets),
            held=held,
            uses_cover=bool(apart),
            local_queues=self._local_queues(node),
            outside=self._outside(node),
            made_from=inputs if lasts else None,
        )

    def _local_queues(self, node: QuotaNode) -> dict[Key, Desired]:
        """One for each of the team's namespaces, named as the team. There may be 20,000 of them."""
        name, own = node.name, node.namespaces
        nodes, spec = frozenset((name,)), {"clusterQueue": name}
        keys = (
            Key(LOCAL_QUEUE, namespace.name, name)
            for namespace in self._namespaces
            if own is None or fits(namespace, own)
        )
        return {key: Desired(key, name, nodes, spec) for key in keys}

    def _outside(self, node: QuotaNode) -> tuple[str, ...]:
        if self._world.namespaces is None:
            return ()
        return tuple(name for name in named(node.namespaces) if name not in self._names)

    def lingering(self, queues: Queues) -> dict[Key, float]:
        """LocalQueues of namespaces that are a team's no more, and since when (steady) they are.

        Its queue takes nothing new from there, and what waits or runs keeps its LocalQueue until it
        has ended or moved. Namespaces that are not enrolled at all lose theirs at once.
        """
        if all(team.node.namespaces is None for team in queues.teams.values()):
            return {}
        found: dict[Key, float] = {}
        for key, live in self._world.live.items():
            if key.kind != LOCAL_QUEUE or key.namespace not in self._names or live.deleting:
                continue
            team = queues.teams.get(live.quota or "")
            if team is None or key in team.local_queues or key.name != team.node.name:
                continue
            since = self._memory.lingering.get(key, self._clock.steady)
            is_fresh = self._clock.steady < since + IDLE_AFTER
            if (is_fresh or not live.is_idle) and is_ours(live, self._options.manager):
                found[key] = since
        return found

    def _cover_groups(self, cover: Mapping[str, Quantity]) -> list[dict[str, Any]]:
        """The cover's own group, if there is one: made once for all teams that have the same."""
        names = tuple(cover)
        if names not in self._covers:
            cells_of = [Cell("", Pair(name, COVER_FLAVOR), cover[name]) for name in names]
            self._covers[names] = merge(cells_of)
        return self._covers[names]

    def _desired(self, node: QuotaNode, groups: list[dict[str, Any]]) -> Desired:
        spec: dict[str, Any] = {"cohortName": node.parent}
        if groups:
            spec["resourceGroups"] = groups
        preemption = self._preemptions.of(node.name)
        selector = self._everywhere
        if node.namespaces is not None:
            selector = queue_selector(self._options, node.namespaces)
        spec |= {"namespaceSelector": selector, "preemption": preemption}
        if node.fair_weight is not None:
            spec["fairSharing"] = {"weight": node.fair_weight}
        if node.stop_policy is not None:
            spec["stopPolicy"] = node.stop_policy
        key = Key(CLUSTER_QUEUE, "", node.name)
        return Desired(key, node.name, frozenset((node.name,)), spec)

    def _live(self, name: str) -> Observed | None:
        live = self._world.live.get(Key(CLUSTER_QUEUE, "", name))
        return live if live is not None and is_ours(live, self._options.manager) else None

    def _sorted_out(self, node: QuotaNode) -> _Budgets:
        """Nothing is missing where the flavors cannot be read. The cover's flavor is not theirs."""
        by_pair: dict[Pair, Budget] = {}
        for budget in node.budgets:
            if budget.flavor != COVER_FLAVOR:
                by_pair.setdefault(budget.pair, budget)
        if self._flavors is None:
            return _Budgets(tuple(by_pair.values()), (), ())
        usable, ending, missing = [], [], []
        for budget in by_pair.values():
            flavor = self._flavors.get(budget.flavor)
            if flavor is None:
                missing.append(budget)
            elif flavor.deleting:
                ending.append(budget)
            else:
                usable.append(budget)
        return _Budgets(tuple(usable), tuple(ending), tuple(missing))

    def _cover(self, node: QuotaNode) -> Mapping[str, Quantity]:
        """The ceilings of what the team does not budget itself, missing flavors included."""
        if not self._options.cover:
            return {}
        budgeted = {budget.resource for budget in node.budgets}
        ceilings = self._options.cover_resources
        return {name: ceilings[name] for name in sorted(ceilings) if name not in budgeted}

    def _has_topology(
        self, usable: Iterable[Budget], cover: Mapping[str, Quantity], live: Observed | None
    ) -> bool:
        """Whether the cover has to stand on the team's own flavors.

        Kueue places a pod either by topology or not, so one flavor without a topology (the cover's)
        would turn away all that asks for one. Where flavors cannot be read, the queue keeps the
        shape that it has.
        """
        flavors = {budget.flavor for budget in usable}
        if self._flavors is not None:
            return any(self._flavors[name].topology for name in flavors)
        listed = cells(live.spec) if live is not None else {}
        return any(pair.resource in cover and pair.flavor in flavors for pair in listed)

    def _held(
        self,
        node: QuotaNode,
        usable: tuple[Budget, ...],
        wanted: Iterable[Cell],
        live: Observed | None,
    ) -> Held:
        if live is None:
            return Held()
        pairs = {cell.pair for cell in wanted}
        may_stay = self._may_stay(node, usable)
        return held_pairs(live, pairs, self._memory, self._clock, may_stay)

    def _may_stay(self, node: QuotaNode, usable: tuple[Budget, ...]) -> Callable[[Pair], bool]:
        """Which leaving pairs may stay at 0 without harm to what stays.

        Not one whose flavor is gone: it would stop the whole queue. Not one of the cover: at 0 it
        would turn away every pod, or tie the cover's group to the team's, in which then no flavor
        has both; it limits nobody, and its use is in no budget. Not one without a topology where
        all that the team has is placed by topology: Kueue places by topology unasked only in queues
        that have nothing else. Kueue goes on counting the use of those that go at once.
        """
        flavors = self._flavors
        budgeted = {budget.resource for budget in node.budgets}
        ceilings = self._options.cover_resources
        topologies = [flavors[b.flavor].topology for b in usable] if flavors is not None else []
        by_topology = bool(topologies) and all(topologies)

        def may_stay(pair: Pair) -> bool:
            if pair.flavor == COVER_FLAVOR:
                return False
            if pair.resource in ceilings and pair.resource not in budgeted:
                return False
            if flavors is None:
                return True
            flavor = flavors.get(pair.flavor)
            return flavor is not None and bool(flavor.topology or not by_topology)

        return may_stay


def _is_lasting(live: Observed | None, desired: Desired) -> bool:
    """Whether nothing leaves the queue: how long a pair stays depends on time and use."""
    return live is None or cells(live.spec).keys() <= cells(desired.spec).keys()


def _wanted(
    name: str, usable: tuple[Budget, ...], cover: Mapping[str, Quantity], wide: bool
) -> list[Cell]:
    """The cells of the budgets; of the cover too where it stands on the team's flavors, as one."""
    hint = "topology" if wide else ""
    own = [
        Cell(name, b.pair, b.nominal, b.borrowing_limit or ZERO, b.lending_limit, hint)
        for b in usable
    ]
    return own + [
        Cell(name, Pair(resource, flavor), ceiling, hint=hint)
        for flavor in dict.fromkeys(budget.flavor for budget in usable)
        for resource, ceiling in cover.items()
    ]


def _notes(name: str, budgets: _Budgets) -> tuple[Note, ...]:
    found = []
    if budgets.missing:
        flavors, fields = _named(budgets.missing)
        text = f"no ResourceFlavor {flavors}: not in Kueue is {fields}; create it or correct it"
        found.append(Note(name, notes.FLAVOR_MISSING, text))
    if budgets.ending:
        flavors, fields = _named(budgets.ending)
        text = f"ResourceFlavor {flavors} is being deleted: held at 0 until unused is {fields}"
        found.append(Note(name, notes.FLAVOR_TERMINATING, text))
    return tuple(found)


def _named(budgets: Iterable[Budget]) -> tuple[str, str]:
    flavors = ", ".join(sorted({budget.flavor for budget in budgets}))
    fields = ", ".join(f"spec.budgets[{b.index}] ({b.resource} {b.nominal})" for b in budgets)
    return flavors, fields
