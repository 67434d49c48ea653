"""What the nodes really have: every measured resource on every flavor, and what belongs to none.

A node belongs to the flavor *all* of whose node labels it carries; of several, to the one with the
most labels. Of several with equally many, one that the tree names beats those it does not name; if
that leaves more than one, the node's devices count nowhere and are listed as unattributed, because
counting them twice or first-come would make a promise that is not true.

Amounts are added as whole nanos and come out in the decimal form, so that neither the order of the
nodes nor the spelling of one of them can change a byte of the result.

Source of the rules: OME's capacity measurement, but zeros are rows too, and so is every flavor.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import nsmallest
from typing import Final, Literal, NamedTuple

import msgspec

from quota_translator.core.grouping import alike_groups
from quota_translator.core.names import COVER_FLAVOR, Pair
from quota_translator.core.quantity import Quantity
from quota_translator.core.world import Flavor, Node

Reason = Literal["NoMatchingFlavor", "AmbiguousFlavor", "UnreadableQuantity"]

# A status must fit etcd even when no node of a large cluster matches a flavor.
MAX_UNATTRIBUTED: Final = 32
MAX_EXAMPLES: Final = 3


class PairReading(msgspec.Struct, frozen=True):
    """One resource on one flavor, as the nodes show it now."""

    pair: Pair
    allocatable: Quantity  # on nodes that are Ready and not cordoned
    unavailable: Quantity  # on the others: parked
    unhealthy: Quantity  # on Ready nodes: in capacity, not offered in allocatable
    nodes: int = 0  # nodes behind `allocatable`; a node with 0 is none
    unavailable_nodes: int = 0
    reported: bool = False  # some node of the flavor lists the resource, be it with 0
    # Nodes whose amount is no quantity. The sums are then a lower bound, not a measurement.
    unreadable: int = 0

    @property
    def installed(self) -> Quantity:
        return self.allocatable + self.unavailable


class Unattributed(msgspec.Struct, frozen=True):
    """Devices that count for no flavor, grouped by what would have to be put right."""

    resource: str
    reason: Reason
    flavors: tuple[str, ...]  # the ones that match best, in the order of their names
    nodes: int
    quantity: Quantity  # 0 for UnreadableQuantity: nobody knows
    examples: tuple[str, ...]  # at most three nodes, in the order of their names


class Reading(msgspec.Struct, frozen=True):
    """One measurement of the whole cluster."""

    pairs: Mapping[Pair, PairReading]  # every measured resource × every flavor, in order
    unattributed: tuple[Unattributed, ...] = ()  # at most 32 rows; the ones with most nodes
    unattributed_nodes: Mapping[str, int] = {}  # by reason; a node counts once, however many rows


def measure(
    nodes: Iterable[Node],
    flavors: Iterable[Flavor],
    resources: Iterable[str],
    named: frozenset[str],
) -> Reading:
    """Count the devices of every node once: for its flavor, or as unattributed.

    `resources` are exact names. `named` are the flavors that the tree names. A flavor in deletion
    counts until it is gone; the controller's own cover flavor takes no part. Never raises.
    """
    wanted = tuple(dict.fromkeys(resources))
    contest = _Contest(flavors, named)
    tallies = {Pair(r, f): _Tally() for r in wanted for f in contest.names}
    loose = _Loose()
    for alike in alike_groups(tuple(nodes), contest.keys):
        winner = contest.winner(alike[0].labels)
        for resource in wanted:
            if resource in alike[0].allocatable or resource in alike[0].capacity:
                loose.add(alike, resource, winner)
                if winner.flavor is not None:
                    tallies[Pair(resource, winner.flavor)].add(alike, resource)
    return Reading(
        pairs={pair: tallies[pair].reading(pair) for pair in sorted(tallies)},
        unattributed=loose.rows(),
        unattributed_nodes=loose.node_counts(),
    )


# --- to which flavor a node belongs -----------------------------------------------------------


class _Winner(NamedTuple):
    """The flavor that a node belongs to, or why there is none, and between which."""

    flavor: str | None
    reason: Reason = "NoMatchingFlavor"
    flavors: tuple[str, ...] = ()


class _Contest:
    """Finds a node's flavor. The answer is kept per combination of the labels that flavors ask for:
    a pool of thousands of nodes costs one comparison.
    """

    def __init__(self, flavors: Iterable[Flavor], named: frozenset[str]) -> None:
        asked = {f.name: f.node_labels for f in flavors if f.name != COVER_FLAVOR}
        self.names = tuple(sorted(asked))
        self._asked = [(name, asked[name]) for name in self.names]
        self._named = named
        self.keys = tuple(sorted({key for labels in asked.values() for key in labels}))
        self._known: dict[tuple[str | None, ...], _Winner] = {}

    def winner(self, labels: Mapping[str, str]) -> _Winner:
        seen = tuple(map(labels.get, self.keys))
        known = self._known.get(seen)
        if known is None:
            known = self._known[seen] = self._decide(labels)
        return known

    def _decide(self, labels: Mapping[str, str]) -> _Winner:
        fitting = [(name, asked) for name, asked in self._asked if asked.items() <= labels.items()]
        most = max((len(asked) for _, asked in fitting), default=0)
        best = tuple(name for name, asked in fitting if len(asked) == most)
        contenders = tuple(name for name in best if name in self._named) or best
        if len(contenders) == 1:
            return _Winner(contenders[0])
        return _Winner(None, "AmbiguousFlavor", contenders) if contenders else _Winner(None)


# --- sums -------------------------------------------------------------------------------------


def _nanos(amounts: Mapping[str, Quantity | None], resource: str) -> int | None:
    """The amount, 0 where the resource is not listed, None where nobody can tell.

    A negative number of devices is as unreadable as a word.
    """
    if resource not in amounts:
        return 0
    amount = amounts[resource]
    return amount.nanos if amount is not None and amount.nanos >= 0 else None


class _Tally:
    """The running sums of one pair."""

    __slots__ = ("nodes", "parked", "parked_nodes", "reported", "unhealthy", "unreadable", "usable")

    def __init__(self) -> None:
        self.usable = self.parked = self.unhealthy = 0
        self.nodes = self.parked_nodes = self.unreadable = 0
        self.reported = False

    def add(self, alike: list[Node], resource: str) -> None:
        """Count nodes that are alike, all of which list the resource."""
        node, count = alike[0], len(alike)
        amount = _nanos(node.allocatable, resource)
        self.reported = True
        if amount is None:
            self.unreadable += count
            return
        if node.ready:
            self.unhealthy += count * max(0, (_nanos(node.capacity, resource) or 0) - amount)
        if amount and node.ready and not node.cordoned:
            self.usable += count * amount
            self.nodes += count
        elif amount:
            self.parked += count * amount
            self.parked_nodes += count

    def reading(self, pair: Pair) -> PairReading:
        return PairReading(
            pair=pair,
            allocatable=Quantity(self.usable),
            unavailable=Quantity(self.parked),
            unhealthy=Quantity(self.unhealthy),
            nodes=self.nodes,
            unavailable_nodes=self.parked_nodes,
            reported=self.reported,
            unreadable=self.unreadable,
        )


_Group = tuple[str, Reason, tuple[str, ...]]


class _Loose:
    """Devices that count for no flavor."""

    def __init__(self) -> None:
        self._nodes: dict[_Group, list[str]] = {}
        self._nanos: Counter[_Group] = Counter()

    def add(self, alike: list[Node], resource: str, winner: _Winner) -> None:
        """Note nodes that are alike, unless their devices count for a flavor. 0 is no device."""
        amount = _nanos(alike[0].allocatable, resource)
        if amount is None:
            flavors = winner.flavors if winner.flavor is None else (winner.flavor,)
            group: _Group = (resource, "UnreadableQuantity", flavors)
        elif winner.flavor is None and amount:
            group = (resource, winner.reason, winner.flavors)
        else:
            return
        self._nodes.setdefault(group, []).extend(node.name for node in alike)
        self._nanos[group] += len(alike) * (amount or 0)

    def rows(self) -> tuple[Unattributed, ...]:
        groups = sorted(self._nodes)
        if len(groups) > MAX_UNATTRIBUTED:
            largest = sorted(groups, key=lambda group: -len(self._nodes[group]))
            groups = sorted(largest[:MAX_UNATTRIBUTED])
        return tuple(self._row(group) for group in groups)

    def _row(self, group: _Group) -> Unattributed:
        names = self._nodes[group]
        return Unattributed(
            *group,
            nodes=len(names),
            quantity=Quantity(self._nanos[group]),
            examples=tuple(nsmallest(MAX_EXAMPLES, names)),
        )

    def node_counts(self) -> dict[str, int]:
        by_reason: dict[str, set[str]] = {}
        for (_, reason, _), names in sorted(self._nodes.items()):
            by_reason.setdefault(reason, set()).update(names)
        return {reason: len(names) for reason, names in by_reason.items()}
