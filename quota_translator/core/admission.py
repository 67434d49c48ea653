"""Whether a write of the tree is allowed: the same `check`, before and after.

A write is denied for what it adds or makes worse, never for what was wrong already, so that a
broken tree can be repaired step by step. What only the hardware or Kueue can tell (a share above
the mark, a flavor that is missing) is warned about, and denied where `webhook.deny` says so.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from quota_translator.core.advice import GOING, Advice, advise
from quota_translator.core.check import check
from quota_translator.core.decision import (
    FORBIDDEN,
    INVALID,
    Cause,
    Decision,
    advised,
    denied,
)
from quota_translator.core.names import CLUSTER_QUEUE, COHORT, ROOT, Pair
from quota_translator.core.nearby import Counted, beneath, nearby
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.sums import add_up
from quota_translator.core.tree import Tree, grow
from quota_translator.core.usage import budget_rows, read_amount
from quota_translator.core.verdict import (
    CAPACITY_EXCEEDED,
    CONTAINMENT_VIOLATED,
    DEPTH_EXCEEDED,
    NODE_KIND_INVALID,
    PARENT_CYCLE,
    PARENT_MISSING,
    UNREACHABLE,
    Context,
    Verdict,
    Violation,
    listed,
)
from quota_translator.core.world import Node, QuotaNode, same_spec

# A node without a place is not judged by what it would be too deep or too large in.
_PLACELESS: Final = frozenset({PARENT_MISSING, PARENT_CYCLE, UNREACHABLE})
_HIDDEN: Final = frozenset({DEPTH_EXCEEDED, CONTAINMENT_VIOLATED})


class Review(msgspec.Struct, frozen=True):
    """What is asked: an operation on one node, with the node as it would be and as it was."""

    operation: Literal["CREATE", "UPDATE", "DELETE"]
    incoming: QuotaNode | None = None  # None when deleting
    stored: QuotaNode | None = None  # None when creating

    @property
    def name(self) -> str:
        node = self.incoming or self.stored
        return node.name if node is not None else ""

    @property
    def changes_nothing(self) -> bool:
        """An update of labels, finalizers and the like."""
        old, new = self.stored, self.incoming
        return old is not None and new is not None and same_spec(old, new)


class Standing(msgspec.Struct, frozen=True):
    """The tree as it is, judged once for all writes that are decided on it."""

    tree: Tree
    context: Context
    verdict: Verdict
    counted: Counted


def stand(nodes: Iterable[QuotaNode], context: Context) -> Standing:
    """`nodes` are the live ones, those in deletion too.

    Where `root` is not there the controller is about to make it: whoever installs and applies a
    tree in one go is not told that it has no parent.
    """
    found = tuple(nodes)
    if all(node.name != ROOT for node in found):
        found = (QuotaNode(ROOT, COHORT), *found)
    tree = grow(found)
    counted: dict[str, Mapping[Pair, Quantity]] = {}
    add_up(tree, counted)
    return Standing(tree, context, check(tree, context), counted)


def weight(standing: Standing, name: str) -> int:
    """How many nodes a decision on a write of this one looks at, roughly."""
    return len(beneath(standing.tree, name))


def decide(
    nodes: Iterable[QuotaNode],
    review: Review,
    context: Context,
    deny: frozenset[str] = frozenset(),
    hardware: Sequence[Node] | None = None,
) -> Decision:
    """One decision. For several on the same nodes, `stand` once and `judge` each."""
    return judge(stand(nodes, context), review, deny, hardware)


def judge(
    standing: Standing,
    review: Review,
    deny: frozenset[str] = frozenset(),
    hardware: Sequence[Node] | None = None,
) -> Decision:
    """`deny` holds names of `WARNINGS`.

    `hardware` None: not known, and then nobody is told of flavors that it fits equally well.
    """
    tree, context = standing.tree, standing.context
    if review.operation == "DELETE" or review.incoming is None:
        return _deletion(tree, review.name)
    before = tree.nodes.get(review.name)
    if review.changes_nothing:
        return Decision(True)
    stored = before or review.stored
    is_update = review.operation == "UPDATE"
    if is_update and stored is not None and stored.role != review.incoming.role:
        return _role_change(tree, stored, review.incoming)
    near = nearby(tree, standing.counted, review.incoming)
    new = check(near.tree, context)
    added = _added(standing.verdict, new, review.name, near.touched)
    if added:
        return denied(review.name, added)
    found = advise(review.incoming, before, standing.verdict, new, context, tree, hardware)
    return advised(review.name, found, deny)


# --- what is denied ---------------------------------------------------------------------------


def _deletion(tree: Tree, name: str) -> Decision:
    node = tree.nodes.get(name)
    children = [child for child in tree.children(name) if child != name]
    if node is None or node.deleting:
        return Decision(True)
    if not children:
        return _leaving(node)
    told = [f"{n} (being deleted)" if tree.nodes[n].deleting else n for n in children]
    message = (
        f"{name}: {len(children)} node(s) name it as their parent: {listed(told)}; delete them or "
        "give them another parent first"
    )
    return Decision(False, message, PARENT_MISSING, FORBIDDEN)


def _leaving(node: QuotaNode) -> Decision:
    """A team may go while it is at work; whoever deletes it should know."""
    if node.role != CLUSTER_QUEUE or not (held := _held(node)):
        return Decision(True)
    message = (
        f"its workloads hold {listed(held)}: they go on, nothing new is admitted, and the node is "
        "gone when they have ended"
    )
    return advised(node.name, [Advice(GOING, message)], frozenset())


def _role_change(tree: Tree, stored: QuotaNode, incoming: QuotaNode) -> Decision:
    message = (
        f"spec.role cannot change from {stored.role} to {incoming.role}: the two are different "
        "objects in Kueue; delete the node and create it again"
    )
    children = tree.children(stored.name)
    held = _held(stored)
    if children:
        message += f" (it has the children {listed(children)})"
    elif held:
        message += f" (its workloads hold {listed(held)})"
    cause = Cause("spec.role", message)
    return Decision(False, f"{stored.name}: {message}", NODE_KIND_INVALID, INVALID, (cause,))


def _held(node: QuotaNode) -> list[str]:
    """What its workloads hold, by its own status: "6 nvidia.com/gpu on a100"."""
    found = {p: read_amount(row.get("admitted")) for p, row in budget_rows(node.status).items()}
    return [f"{amount} {pair}" for pair, amount in sorted(found.items()) if amount]


def _added(old: Verdict, new: Verdict, name: str, touched: frozenset[str]) -> list[Violation]:
    """The violations that are new, or whose numbers are further apart than before.

    What comes to light because others find their place again is not new: root could not be created
    above a tree that is too deep.
    """
    known = {violation.identity: violation.excess for violation in old.violations}
    placeless = {v.node for v in old.violations if v.reason in _PLACELESS} - {name}
    return [
        violation
        for violation in new.violations
        if violation.node in touched
        and violation.reason != CAPACITY_EXCEEDED
        and not (violation.reason in _HIDDEN and violation.node in placeless)
        and (violation.identity not in known or _is_worse(violation, known[violation.identity]))
    ]


def _is_worse(violation: Violation, before: Quantity | None) -> bool:
    return violation.excess is not None and violation.excess > (before or ZERO)
