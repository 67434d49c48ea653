"""The tree, assembled from any set of nodes: broken ones have their place in it too.

A parent reference counts as resolved when a node of that name exists. `root` has no parent,
whatever it says; saying otherwise is a violation that `check` reports, not a way to build a cycle.
Nothing here judges, and nothing raises: every walk ends on cycles, duplicates and gaps.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final

from quota_translator.core.names import CLUSTER_QUEUE, ROOT
from quota_translator.core.world import QuotaNode

_LINE: Final = re.compile(r"(.*):(\d{1,9})")


class Tree:
    """A set of nodes with their links. Build it with `grow`; treat it as immutable."""

    def __init__(self, nodes: Mapping[str, QuotaNode], copies: Mapping[str, tuple[QuotaNode, ...]]):
        self.nodes: Final = nodes
        """Every node by name, in the order of names; of several with one name the first."""
        self.duplicates: Final = copies
        """The names that occur more than once, each with all of its nodes."""
        self._children: Final = _children(nodes)
        self._depth: Final = _depths(self._children) if ROOT in nodes else {}

    # --- links ----------------------------------------------------------------------------

    def children(self, name: str) -> tuple[str, ...]:
        """The nodes that name this one as their parent, sorted; beneath leaves and in loops too."""
        return tuple(self._children.get(name, ()))

    def parent(self, name: str) -> str | None:
        """The parent if it exists; None for root, and for a reference that dangles or is absent."""
        node = self.nodes.get(name)
        if node is None or name == ROOT or node.parent not in self.nodes:
            return None
        return node.parent

    def ancestors(self, name: str) -> tuple[str, ...]:
        """From the top down to the parent. In a loop each node appears once."""
        found: dict[str, None] = {}
        above = self.parent(name)
        while above is not None and above not in found and above != name:
            found[above] = None
            above = self.parent(above)
        return tuple(reversed(found))

    def subtree(self, name: str) -> tuple[str, ...]:
        """The node and everything beneath it, in pre-order; () for a name that no node has."""
        return tuple(self._walk(name)) if name in self.nodes else ()

    # --- position -------------------------------------------------------------------------

    def depth(self, name: str) -> int:
        """Edges below root; -1 for a node that no chain of parents joins to root."""
        return self._depth.get(name, -1)

    def is_reached(self, name: str) -> bool:
        return name in self._depth

    def path(self, name: str) -> str:
        """Such as "root/ml/vision"; "" for a node that root does not reach."""
        return "/".join((*self.ancestors(name), name)) if self.is_reached(name) else ""

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The reached nodes in pre-order: root first, siblings by name."""
        return self.subtree(ROOT)

    @cached_property
    def tops(self) -> tuple[str, ...]:
        """The nodes without a resolved parent: root first, then by name. A loop has none."""
        found = [name for name in self.nodes if name != ROOT and self.parent(name) is None]
        return (ROOT, *found) if ROOT in self.nodes else tuple(found)

    @cached_property
    def forest(self) -> tuple[str, ...]:
        """Every node that hangs from a top, parents before children: all but loops and theirs."""
        return tuple(name for top in self.tops for name in self._walk(top))

    # --- roles ----------------------------------------------------------------------------

    def is_leaf(self, name: str) -> bool:
        """A team: by its declared role, not by having no children. root is never one."""
        node = self.nodes.get(name)
        return node is not None and node.role == CLUSTER_QUEUE and name != ROOT

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """The names of all teams, reached or not, sorted."""
        return tuple(name for name in self.nodes if self.is_leaf(name))

    def _walk(self, top: str) -> Iterator[str]:
        seen: set[str] = set()
        todo = [top]
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                yield name
                todo.extend(reversed(self._children.get(name, ())))


def grow(quotas: Iterable[QuotaNode]) -> Tree:
    """The tree of these nodes, the same for any order in which they come. Never raises."""
    named: dict[str, list[QuotaNode]] = {}
    for node in quotas:
        named.setdefault(node.name, []).append(node)
    copies = {
        name: tuple(sorted(named[name], key=_seniority))
        for name in sorted(named)
        if len(named[name]) > 1
    }
    nodes = {name: copies[name][0] if name in copies else named[name][0] for name in sorted(named)}
    return Tree(nodes, copies)


def _children(nodes: Mapping[str, QuotaNode]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, node in nodes.items():  # by name, so that each list is sorted
        if name != ROOT and node.parent is not None and node.parent in nodes:
            found.setdefault(node.parent, []).append(name)
    return found


def _depths(children: Mapping[str, list[str]]) -> dict[str, int]:
    depths = {ROOT: 0}
    todo = deque([ROOT])
    while todo:
        name = todo.popleft()
        for child in children.get(name, ()):
            depths[child] = depths[name] + 1
            todo.append(child)
    return depths


def _seniority(node: QuotaNode) -> tuple[object, ...]:
    """Which of several nodes with one name is the first: the oldest, then the first in its file."""
    where = _LINE.fullmatch(node.source)
    file, line = (where[1], int(where[2])) if where else (node.source, 0)
    return (not node.created, node.created, file, line, node.uid, repr(node))
