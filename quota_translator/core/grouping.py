"""Nodes between which measuring can see no difference, so that its rules run once per group."""

from collections import defaultdict
from collections.abc import Iterable
from operator import is_
from typing import Any, Final

from quota_translator.core.world import Node

_STRETCH: Final = 1024  # nodes that are grouped together

_Alike = dict[tuple[Any, ...], list[Node]]


class _Grouping:
    """Groups nodes, and remembers the last time.

    Nodes are grouped in stretches, and a stretch in which every node is the very object of last
    time is taken as it was: an event changes one node of thousands.
    """

    def __init__(self) -> None:
        self._last: tuple[tuple[str, ...], list[tuple[tuple[Node, ...], _Alike]]] = ((), [])

    def groups(self, nodes: tuple[Node, ...], keys: tuple[str, ...]) -> Iterable[list[Node]]:
        asked, former = self._last
        before = iter(former if asked == keys else ())
        found = [
            self._stretch(nodes[start : start + _STRETCH], keys, next(before, None))
            for start in range(0, len(nodes), _STRETCH)
        ]
        self._last = (keys, found)
        merged: _Alike = {}
        for _, groups in found:
            for signature, alike in groups.items():
                merged.setdefault(signature, []).extend(alike)
        return merged.values()

    def _stretch(
        self,
        nodes: tuple[Node, ...],
        keys: tuple[str, ...],
        before: tuple[tuple[Node, ...], _Alike] | None,
    ) -> tuple[tuple[Node, ...], _Alike]:
        if before and len(before[0]) == len(nodes) and all(map(is_, before[0], nodes)):
            return before
        return nodes, _alike(nodes, keys)


_grouping: Final = _Grouping()


def alike_groups(nodes: tuple[Node, ...], keys: tuple[str, ...]) -> Iterable[list[Node]]:
    """The nodes in groups of equal labels (of these keys), amounts and states, in their order.

    What was grouped last time is remembered, which shows in nothing but time.
    """
    return _grouping.groups(nodes, keys)


def _alike(nodes: tuple[Node, ...], keys: tuple[str, ...]) -> _Alike:
    """The groups of some nodes by what tells them apart.

    Built by columns, because a loop that asks every rule of every node costs ten times as much.
    Amounts are told apart by the object that holds them (nodes read from a server share it): an
    equal one makes a group more, never a wrong one.
    """
    labels = [node.labels for node in nodes]
    columns: list[list[Any]] = [[have.get(key) for have in labels] for key in keys]
    amounts = ([node.allocatable for node in nodes], [node.capacity for node in nodes])
    columns += [list(map(id, each)) for each in amounts]
    columns += [[node.ready for node in nodes], [node.cordoned for node in nodes]]
    groups: defaultdict[tuple[Any, ...], list[Node]] = defaultdict(list)
    for signature, node in zip(zip(*columns, strict=True), nodes, strict=True):
        groups[signature].append(node)
    return groups
