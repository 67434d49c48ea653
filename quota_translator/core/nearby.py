"""The part of a tree that a write can touch, so that deciding on it need not look at the rest.

A write of one node changes what is true of the node, of everything beneath it, and of the nodes
above its old place and its new one. What stands beside these only counts in sums. It is given one
stand-in for each parent, which the sums of the whole tree are known for.
"""

from collections.abc import Mapping

import msgspec

from quota_translator.core.names import COHORT, ROOT, Pair, pair_of
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.tree import Tree, grow
from quota_translator.core.world import Budget, QuotaNode

Counted = Mapping[str, Mapping[Pair, Quantity]]  # by name: what a node counts for with its parent


class Nearby(msgspec.Struct, frozen=True):
    """`tree` is the tree after the write, cut down: what is said of `touched` holds for both."""

    tree: Tree
    touched: frozenset[str]


def nearby(before: Tree, counted: Counted, incoming: QuotaNode) -> Nearby:
    """`counted` belongs to `before`. Nodes in loops may be missing there: they have no sums."""
    touched = frozenset(_touched(before, incoming))
    nodes = [before.nodes[name] for name in touched if name in before.nodes]
    kept = [node for node in nodes if node.name != incoming.name]
    beside = [_beside(before, counted, node.name, touched) for node in kept]
    return Nearby(grow([*kept, incoming, *(one for one in beside if one.budgets)]), touched)


def beneath(tree: Tree, name: str) -> tuple[str, ...]:
    """The node's subtree; of a node that does not exist yet, what waits for it and all beneath."""
    if name in tree.nodes:
        return tree.subtree(name)
    waiting = [node.name for node in tree.nodes.values() if node.parent == name]
    return tuple(found for top in waiting for found in tree.subtree(top))


def _touched(before: Tree, incoming: QuotaNode) -> set[str]:
    found = {incoming.name, *beneath(before, incoming.name), *before.ancestors(incoming.name)}
    parent = incoming.parent
    if incoming.name != ROOT and parent is not None and parent in before.nodes:
        found |= {parent, *before.ancestors(parent)}
    return found


def _beside(before: Tree, counted: Counted, parent: str, touched: frozenset[str]) -> QuotaNode:
    """All other children of a parent as one, with the sums of what they count for."""
    sums: dict[Pair, Quantity] = {}
    for child in before.children(parent):
        if child not in touched:
            for pair, amount in counted.get(child, {}).items():
                sums[pair] = sums.get(pair, ZERO) + amount
    budgets = tuple(Budget(*pair_of(*pair), nominal=amount) for pair, amount in sums.items())
    return QuotaNode(f"{parent}\0", COHORT, parent, budgets)  # no object can have that name
