"""Kueue's hierarchical quota for one pair, as pure functions.

What a queue may take now, what it could take were everything idle, and which limit stops it.
The rules are those of Kueue's scheduler cache (`resource_node.go`), worked on whole numbers: cpu in
thousandths, everything else in units, both rounded up. The tests hold examples that were run on
Kueue 0.17 and 0.19.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from quota_translator.core.kueue import cells, parent_of
from quota_translator.core.names import CLUSTER_QUEUE, COHORT, Key, Kind, Pair
from quota_translator.core.quantity import Quantity
from quota_translator.core.world import Observed

_MILLI_NANOS = 10**6


class Member(msgspec.Struct, frozen=True):
    """A Cohort or ClusterQueue as far as one pair is concerned. A limit of None is no limit."""

    kind: Kind
    name: str
    parent: str | None = None  # a Cohort, which need not exist
    nominal: int = 0
    borrowing: int | None = None
    lending: int | None = None
    usage: int = 0  # of a ClusterQueue: all that holds a reservation; a Cohort's is worked out

    @property
    def key(self) -> Key:
        return Key(self.kind, "", self.name)


class QuotaTree(msgspec.Struct, frozen=True):
    """Members with their links, Cohorts that are only named included. Build it with `build`."""

    members: Mapping[Key, Member]
    children: Mapping[str, tuple[Key, ...]]  # by the Cohort's name

    def beneath(self, key: Key) -> tuple[Key, ...]:
        return self.children.get(key.name, ()) if key.kind == COHORT else ()


class Figures(msgspec.Struct, frozen=True):
    """What Kueue works out for one member.

    `subtree` is the quota that it has or can hand up; `local` the part of it that never leaves;
    `usage` what counts against it (of a Cohort without what its members hold in their local parts);
    `available` what may be admitted now; `potential` what could be, were nothing in use.
    """

    subtree: int
    local: int
    usage: int
    available: int
    potential: int


def build(members: Iterable[Member]) -> QuotaTree:
    """A tree of members in any order. A parent that is only named is a Cohort without quota."""
    known = {member.key: member for member in members}
    for member in list(known.values()):
        if member.parent is not None:
            key = Key(COHORT, "", member.parent)
            known.setdefault(key, Member(COHORT, member.parent))
    children: dict[str, list[Key]] = {}
    for key in sorted(known):
        parent = known[key].parent
        if parent is not None:
            children.setdefault(parent, []).append(key)
    return QuotaTree(known, {name: tuple(keys) for name, keys in children.items()})


def from_live(live: Mapping[Key, Observed], pair: Pair) -> QuotaTree:
    """The tree of one pair in observed objects. Usage is what ClusterQueues report as reserved."""
    return build(
        _member(observed, pair)
        for observed in live.values()
        if observed.key.kind in {COHORT, CLUSTER_QUEUE}
    )


def solve(tree: QuotaTree) -> Mapping[Key, Figures]:
    """The figures of every member, parents first.

    Members of a loop of Cohorts, and what hangs from it, have none: Kueue leaves them out.
    """
    order = list(_downwards(tree))
    subtree: dict[Key, int] = {}
    local: dict[Key, int] = {}
    usage: dict[Key, int] = {}
    for key in reversed(order):
        member, beneath = tree.members[key], tree.beneath(key)
        subtree[key] = member.nominal + sum(subtree[child] - local[child] for child in beneath)
        local[key] = 0 if member.lending is None else max(0, subtree[key] - member.lending)
        above = sum(max(0, usage[child] - local[child]) for child in beneath)
        usage[key] = member.usage if key.kind == CLUSTER_QUEUE else above
    found: dict[Key, Figures] = {}
    for key in order:
        member = tree.members[key]
        up = None if member.parent is None else found[Key(COHORT, "", member.parent)]
        found[key] = _figures(member, subtree[key], local[key], usage[key], up)
    return found


def subtree_bound(tree: QuotaTree, key: Key) -> int | None:
    """What a member and everything beneath it can never exceed together; None: no bound of its own.

    All nominal quotas of the subtree and the member's borrowing limit. At the top there is nothing
    to borrow from. Lending limits do not change it, only who may use what.
    """
    member = tree.members[key]
    funded, seen, todo = 0, {key}, [key]
    while todo:
        current = todo.pop()
        funded += tree.members[current].nominal
        fresh = [child for child in tree.beneath(current) if child not in seen]
        seen.update(fresh)
        todo.extend(fresh)
    if member.parent is None:
        return funded
    return None if member.borrowing is None else funded + member.borrowing


def binding(tree: QuotaTree, figures: Mapping[Key, Figures], key: Key) -> Key:
    """The member whose limit makes `key`'s potential what it is: itself, or one above it."""
    member = tree.members[key]
    while member.parent is not None:
        own, above = figures[member.key], Key(COHORT, "", member.parent)
        limit = None if member.borrowing is None else own.subtree + member.borrowing
        if limit is not None and limit <= own.local + figures[above].potential:
            break
        member = tree.members[above]
    return member.key


def units(resource: str, amount: Quantity) -> int:
    """A quantity in the whole numbers that Kueue counts with: cpu in thousandths; rounded up."""
    return -(-amount.nanos // _MILLI_NANOS) if resource == "cpu" else amount.ceil()


def charged(resource: str, amount: Quantity) -> Quantity:
    """A quantity as Kueue counts it, rounded up."""
    if resource == "cpu":
        return Quantity(units(resource, amount) * _MILLI_NANOS, amount.form)
    return amount if amount.is_whole else Quantity.of(amount.ceil())


def _figures(member: Member, subtree: int, local: int, usage: int, up: Figures | None) -> Figures:
    if up is None:
        available, potential = subtree - usage, subtree
    else:
        available, potential = up.available, local + up.potential
        if member.borrowing is not None:
            lendable, lent = subtree - local, max(0, usage - local)
            available = min(available, lendable - lent + member.borrowing)
            potential = min(potential, subtree + member.borrowing)
        available += max(0, local - usage)
    if member.kind == CLUSTER_QUEUE:
        available = max(0, available)
    return Figures(subtree, local, usage, available, potential)


def _downwards(tree: QuotaTree) -> Iterator[Key]:
    """Parents before children, from the members without a parent; loops are not reached."""
    todo = [key for key in sorted(tree.members) if tree.members[key].parent is None]
    while todo:
        key = todo.pop()
        yield key
        todo.extend(tree.beneath(key))


def _member(observed: Observed, pair: Pair) -> Member:
    cell = cells(observed.spec).get(pair, {})
    reserved = (observed.reservation or {}).get(pair)
    return Member(
        kind=observed.key.kind,
        name=observed.key.name,
        parent=parent_of(observed),
        nominal=_units(cell, "nominalQuota", pair) or 0,
        borrowing=_units(cell, "borrowingLimit", pair),
        lending=_units(cell, "lendingLimit", pair),
        usage=units(pair.resource, reserved.total) if reserved else 0,
    )


def _units(cell: Mapping[str, Any], field: str, pair: Pair) -> int | None:
    amount = cell.get(field)
    return units(pair.resource, amount) if isinstance(amount, Quantity) else None
