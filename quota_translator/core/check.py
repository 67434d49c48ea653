"""Is every promise of the tree sound? Values in, values out; nothing is changed, nothing raises.

A rule is a function that yields violations; a new one is added to `RULES`. The controller, the
command line and the tests call `check`, and so print the same list.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from quota_translator.core import limits, rules, structure, sums
from quota_translator.core.tree import Tree
from quota_translator.core.verdict import (
    RANKS,
    Context,
    Frozen,
    Oversubscription,
    Verdict,
    Violation,
    by_node,
    node_message,
)

__all__ = [
    "RANKS",
    "RULES",
    "Context",
    "Frozen",
    "Oversubscription",
    "Verdict",
    "Violation",
    "by_node",
    "check",
    "freeze",
    "node_message",
]

Rule = Callable[[Tree, Context], Iterator[Violation]]

RULES: Final[tuple[Rule, ...]] = (
    structure.unique_names,
    structure.parents,
    structure.loops,
    structure.reachable,
    structure.depth,
    structure.kinds,
    rules.names,
    rules.fields,
    rules.budgets,
    rules.expected,
    limits.kueue_limits,
    sums.capacity,
)


def check(tree: Tree, context: Context) -> Verdict:
    """Every violation of the tree, the nodes that these freeze, and what is oversubscribed."""
    added = sums.add_up(tree)
    found = chain(sums.containment(tree, added), *(rule(tree, context) for rule in RULES))
    violations = tuple(sorted(found, key=lambda one: one.order))
    return Verdict(violations, freeze(tree, violations), sums.oversubscribed(tree, added, context))


def freeze(tree: Tree, violations: tuple[Violation, ...]) -> dict[str, Frozen]:
    """Every violating node and all beneath it, in the order of names.

    A node's own violation beats an inherited one; otherwise the nearest violating ancestor's reason
    and message are its own, word for word.
    """
    frozen = {
        name: Frozen(own[0].reason, node_message(own), name)
        for name, own in by_node(violations).items()
    }
    # Parents come before children here. Nodes in loops, which are not here, violate themselves.
    for name in tree.forest if frozen else ():
        above = tree.parent(name)
        if name not in frozen and above in frozen:
            frozen[name] = frozen[above]
    return dict(sorted(frozen.items()))
