"""Cells into resource groups that Kueue accepts, for ClusterQueues and for Cohorts.

Kueue lets a resource and a flavor stand in one group only, and wants every flavor of a group to
list every covered resource in one order (its ClusterQueue and Cohort webhooks). So the groups are
the connected components of the (resource, flavor) pairs, and cells that nobody funded fill gaps.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from quota_translator.core.names import CLUSTER_QUEUE, Kind, Pair
from quota_translator.core.quantity import ZERO, Quantity


class Cell(msgspec.Struct, frozen=True, gc=False):
    """What one node puts on one pair. A limit of None is absent, which to Kueue is "no limit".

    Cells with the same `hint` stand in one group, whatever their pairs.
    """

    node: str
    pair: Pair
    nominal: Quantity
    borrowing: Quantity | None = None
    lending: Quantity | None = None
    hint: str = ""


def merge(
    cells: Iterable[Cell], flavor_order: Sequence[str] = (), kind: Kind = CLUSTER_QUEUE
) -> list[dict[str, Any]]:
    """The resourceGroups of these cells in normal form (see `core/kueue.py`).

    Flavors stand in `flavor_order`, those that it does not name behind them by name; groups stand
    in the order of their first flavors. Of two cells on one pair the first counts. A filler has
    nominal 0; on a ClusterQueue also borrowingLimit 0, so that nothing runs where nobody asked for
    it. On a Cohort it has no limits, which to Kueue is the same as no entry.
    """
    by_pair: dict[Pair, Cell] = {}
    for cell in cells:
        by_pair.setdefault(cell.pair, cell)
    rank = {flavor: place for place, flavor in enumerate(dict.fromkeys(flavor_order))}
    filler = ZERO if kind == CLUSTER_QUEUE else None
    groups = []
    for resources, flavors in _components(by_pair.values()):
        ordered = sorted(flavors, key=lambda flavor: (rank.get(flavor, len(rank)), flavor))
        groups.append(_group(sorted(resources), ordered, by_pair, filler))
    return sorted(groups, key=lambda group: _place(group, rank))


def _components(cells: Iterable[Cell]) -> list[tuple[set[str], set[str]]]:
    """The connected sets of (resources, flavors)."""
    found: list[tuple[set[str], set[str], set[str]]] = []
    for cell in cells:
        hints = {cell.hint} if cell.hint else set()
        resources, flavors, apart = {cell.pair.resource}, {cell.pair.flavor}, []
        for group in found:
            if resources & group[0] or flavors & group[1] or hints & group[2]:
                resources |= group[0]
                flavors |= group[1]
                hints |= group[2]
            else:
                apart.append(group)
        found = [*apart, (resources, flavors, hints)]
    return [(resources, flavors) for resources, flavors, _ in found]


def _group(
    resources: Sequence[str],
    flavors: Sequence[str],
    cells: Mapping[Pair, Cell],
    filler: Quantity | None,
) -> dict[str, Any]:
    def entry(resource: str, flavor: str) -> dict[str, Any]:
        cell = cells.get(Pair(resource, flavor))
        if cell is None:
            return _entry(resource, ZERO, filler, None)
        return _entry(resource, cell.nominal, cell.borrowing, cell.lending)

    return {
        "coveredResources": list(resources),
        "flavors": [
            {"name": flavor, "resources": [entry(resource, flavor) for resource in resources]}
            for flavor in flavors
        ],
    }


def _entry(
    resource: str, nominal: Quantity, borrowing: Quantity | None, lending: Quantity | None
) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": resource, "nominalQuota": nominal}
    if borrowing is not None:
        entry["borrowingLimit"] = borrowing
    if lending is not None:
        entry["lendingLimit"] = lending
    return entry


def _place(group: Mapping[str, Any], rank: Mapping[str, int]) -> tuple[int, str]:
    first = group["flavors"][0]["name"]
    return (rank.get(first, len(rank)), first)
