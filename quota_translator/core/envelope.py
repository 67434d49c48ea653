"""Enforced group budgets: what a group's Cohort must hold so that its budget is a cap at run time.

Kueue holds a subtree to the sum of all quotas in it and its top's borrowing limit. So the Cohort's
own quota is what is left of the budget after everything that stands beneath it, and where more
stands there than the budget, the limit gives way.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from quota_translator.core.arithmetic import charged
from quota_translator.core.groups import Cell
from quota_translator.core.kueue import cells as live_cells
from quota_translator.core.kueue import is_ours, nominal_cells, parent_of
from quota_translator.core.names import CLUSTER_QUEUE, COHORT, ROOT, Key, Pair
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.world import Budget, Desired, QuotaNode, World

Shares = Mapping[Pair, Quantity]


class Overdraft(msgspec.Struct, frozen=True):
    """More stands beneath a group than it may hold: the numbers of EnvelopeOverdrawn."""

    nominal: Quantity  # the group's budget
    beneath: Quantity  # what stands beneath its Cohort
    excess: Quantity  # beneath - nominal
    borrowing_limit: Quantity  # as written, 0 when unset
    limit_in_force: Quantity  # what the excess leaves of it

    @property
    def message(self) -> str:
        """The numbers, what became of the limit, and what ends it."""
        text = (
            f"{self.beneath} stand beneath it and its budget is {self.nominal}, {self.excess} less"
        )
        if self.borrowing_limit:
            text += f"; borrowingLimit {self.borrowing_limit} counts as {self.limit_in_force}"
        return f"{text}; lower what stands beneath or raise the budget"

    def __str__(self) -> str:
        return self.message


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where an object stands and what it holds; `shares` None: a Cohort that is worked out here."""

    parent: str | None
    shares: Shares | None
    foreign: bool = False


class Envelopes(msgspec.Struct, frozen=True):
    """The cells of each group's Cohort, and what is to be said of groups: those that enforce a
    budget, and (`foreign_members`) any that somebody else's objects stand beneath."""

    cells: Mapping[str, tuple[Cell, ...]] = {}
    overdrawn: Mapping[tuple[str, Pair], Overdraft] = {}
    foreign_members: Mapping[str, tuple[str, ...]] = {}


def enforced(node: QuotaNode) -> tuple[Budget, ...]:
    """The budgets of a group that are caps at run time; of two on one pair the first counts."""
    if node.role != COHORT or node.name == ROOT:
        return ()
    found: dict[Pair, Budget] = {}
    for budget in node.budgets:
        if budget.enforced:
            found.setdefault(budget.pair, budget)
    return tuple(found.values())


def envelopes(
    groups: Sequence[QuotaNode],
    queues: Iterable[Desired],
    stuck: frozenset[Key],
    world: World,
    manager: str,
) -> Envelopes:
    """Work out the groups that are being written, in any order; `queues` are the teams that are.

    `stuck` are written objects that the server refuses as they are: they count as they stand now.
    """
    if not any(enforced(node) for node in groups):
        return Envelopes(foreign_members=_foreign(groups, world, manager))
    if not {COHORT, CLUSTER_QUEUE} <= world.known:
        return _as_they_are(groups, world, manager)
    places = _places(groups, queues, stuck, world, manager)
    work = _Work(groups, places)
    for name in _upwards(places):
        work.settle(name)
    foreign = {**_foreign(groups, world, manager), **work.foreign}
    return Envelopes(work.cells, work.overdrawn, foreign)


def _foreign(groups: Iterable[QuotaNode], world: World, manager: str) -> dict[str, tuple[str, ...]]:
    """Somebody else's objects, on the nearest group that they stand beneath."""
    names = {node.name for node in groups}
    found: dict[str, list[str]] = {}
    for key, live in world.live.items():
        if key.kind not in {COHORT, CLUSTER_QUEUE} or is_ours(live, manager):
            continue
        above, passed = parent_of(live), {key.name}
        while above is not None and above not in names and above not in passed:
            passed.add(above)
            cohort = world.live.get(Key(COHORT, "", above))
            above = parent_of(cohort) if cohort is not None else None
        if above in names:
            found.setdefault(str(above), []).append(str(key))
    return {name: tuple(sorted(members)) for name, members in found.items()}


class _Work:
    """Totals from the bottom up. A loop of foreign Cohorts counts what was reached before it."""

    def __init__(self, groups: Sequence[QuotaNode], places: Mapping[Key, Place]) -> None:
        self.cells: dict[str, tuple[Cell, ...]] = {}
        self.overdrawn: dict[tuple[str, Pair], Overdraft] = {}
        self.foreign: dict[str, tuple[str, ...]] = {}
        self._groups = {node.name: node for node in groups}
        self._places = places
        self._children = _children(places)
        self._pairs = {budget.pair for node in groups for budget in enforced(node)}
        self._totals: dict[str, dict[Pair, Quantity]] = {}
        self._strangers: dict[str, list[str]] = {}

    def settle(self, name: str) -> None:
        """One Cohort, after all that stand beneath it."""
        beneath: dict[Pair, Quantity] = {}
        strangers: list[str] = []
        for key in self._children.get(name, ()):
            place = self._places[key]
            if place.foreign:
                strangers.append(str(key))
            if key.kind == COHORT:
                self._add(beneath, self._totals.get(key.name, {}))
                strangers += self._strangers.get(key.name, ())
            else:
                self._add(beneath, place.shares or {})
        own = self._own(name, beneath)
        self._add(beneath, own)
        self._totals[name] = beneath
        self._strangers[name] = strangers
        if strangers and name in self._groups and enforced(self._groups[name]):
            self.foreign[name] = tuple(sorted(strangers))

    def _own(self, name: str, beneath: Shares) -> Shares:
        """What the Cohort itself holds: as it will be written, else as it is."""
        place = self._places.get(Key(COHORT, "", name))
        own: dict[Pair, Quantity] = {}
        if name in self._groups:
            own = self._render(self._groups[name], beneath)
        return own if place is None or place.shares is None else place.shares

    def _render(self, node: QuotaNode, beneath: Shares) -> dict[Pair, Quantity]:
        found = []
        for budget in enforced(node):
            cell, overdraft = _cell(node.name, budget, beneath.get(budget.pair, ZERO))
            found.append(cell)
            if overdraft is not None:
                self.overdrawn[node.name, budget.pair] = overdraft
        self.cells[node.name] = tuple(found)
        return {cell.pair: cell.nominal for cell in found}

    def _add(self, amounts: dict[Pair, Quantity], more: Shares) -> None:
        for pair, amount in more.items():
            if pair in self._pairs and amount:
                amounts[pair] = amounts.get(pair, ZERO) + charged(pair.resource, amount)


def _cell(name: str, budget: Budget, beneath: Quantity) -> tuple[Cell, Overdraft | None]:
    limit = budget.borrowing_limit or ZERO
    rest = budget.nominal - beneath
    if rest >= ZERO:
        return Cell(name, budget.pair, rest, limit, budget.lending_limit), None
    left = max(limit + rest, ZERO)
    cell = Cell(name, budget.pair, ZERO, left, budget.lending_limit)
    return cell, Overdraft(budget.nominal, beneath, -rest, limit, left)


def _places(
    groups: Sequence[QuotaNode],
    queues: Iterable[Desired],
    stuck: frozenset[Key],
    world: World,
    manager: str,
) -> dict[Key, Place]:
    """Everything that stands in Kueue, each object once: as it will be, else as it is.

    As it is: what is not ours, what is kept, what is on its way out, and what a stranger or a
    refusal stands in the way of.
    """
    wanted = {Key(COHORT, "", node.name): Place(node.parent, None) for node in groups}
    if ROOT in {node.name for node in groups}:
        wanted[Key(COHORT, "", ROOT)] = Place(None, None)
    for queue in queues:
        wanted[queue.key] = Place(queue.spec["cohortName"], nominal_cells(queue.spec))
    places = {key: place for key, place in wanted.items() if key not in stuck}
    for key, live in world.live.items():
        if key.kind not in {COHORT, CLUSTER_QUEUE}:
            continue
        ours = is_ours(live, manager)
        if key not in places or live.deleting or not ours:
            places[key] = Place(parent_of(live), nominal_cells(live.spec), not ours)
    return places


def _children(places: Mapping[Key, Place]) -> dict[str, list[Key]]:
    found: dict[str, list[Key]] = {}
    for key in sorted(places):
        parent = places[key].parent
        if parent is not None:
            found.setdefault(parent, []).append(key)
    return found


def _upwards(places: Mapping[Key, Place]) -> list[str]:
    """Every Cohort that exists or is named, those beneath before those above; loops are cut."""
    children = _children(places)
    names = {key.name for key in places if key.kind == COHORT} | children.keys()
    order: list[str] = []
    seen: set[str] = set()
    todo = [(name, False) for name in sorted(names, reverse=True)]
    while todo:
        name, done = todo.pop()
        if done:
            order.append(name)
        elif name not in seen:
            seen.add(name)
            todo.append((name, True))
            todo += [(key.name, False) for key in children.get(name, ()) if key.kind == COHORT]
    return order


def _as_they_are(groups: Sequence[QuotaNode], world: World, manager: str) -> Envelopes:
    """What stands beneath is not known: nothing may grow on that. Live cells stay, others are 0."""
    found = {}
    for node in groups:
        live = world.live.get(Key(COHORT, "", node.name))
        listed = live_cells(live.spec) if live is not None and is_ours(live, manager) else {}
        found[node.name] = tuple(
            Cell(
                node.name,
                budget.pair,
                _amount(listed.get(budget.pair, {}).get("nominalQuota")) or ZERO,
                _amount(listed.get(budget.pair, {}).get("borrowingLimit")) or ZERO,
                _amount(listed.get(budget.pair, {}).get("lendingLimit")),
            )
            for budget in enforced(node)
        )
    return Envelopes(found)


def _amount(value: object) -> Quantity | None:
    return value if isinstance(value, Quantity) else None
