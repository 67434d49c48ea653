"""Whether a write of the tree is allowed: the same `check`, before and after.

A write is denied for what it adds or makes worse, never for what was wrong already, so that a
broken tree can be repaired step by step. What only the hardware or Kueue can tell (a share above
the mark, a flavor that is missing) is warned about, and denied where `webhook.deny` says so.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from quota_translator.core.advice import Advice, advise
from quota_translator.core.check import check
from quota_translator.core.names import Pair
from quota_translator.core.nearby import Counted, beneath, nearby
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.sums import add_up
from quota_translator.core.tree import Tree, grow
from quota_translator.core.usage import budget_rows, read_amount
from quota_translator.core.verdict import (
    BUDGET_INVALID,
    CAPACITY_EXCEEDED,
    CONTAINMENT_VIOLATED,
    DEPTH_EXCEEDED,
    NAME_INVALID,
    NODE_KIND_INVALID,
    PARENT_CYCLE,
    PARENT_MISSING,
    UNREACHABLE,
    Context,
    Verdict,
    Violation,
    listed,
)
from quota_translator.core.world import Node, QuotaNode

FORBIDDEN: Final = 403
INVALID: Final = 422
_FIELD_REASONS: Final = frozenset({NODE_KIND_INVALID, NAME_INVALID, BUDGET_INVALID})
# A node without a place is not judged by what it would be too deep or too large in.
_PLACELESS: Final = frozenset({PARENT_MISSING, PARENT_CYCLE, UNREACHABLE})
_HIDDEN: Final = frozenset({DEPTH_EXCEEDED, CONTAINMENT_VIOLATED})
_MOST_MESSAGE: Final = 4000  # characters of a denial
_MOST_WARNING: Final = 255  # a longer one may be cut on its way to the person
_MOST_WARNINGS: Final = 12
_SPEC: Final = ("role", "parent", "budgets", "faults", "priority_tier", "distribution")


class Review(msgspec.Struct, frozen=True):
    """What is asked: an operation on one node, with the node as it would be and as it was."""

    operation: Literal["CREATE", "UPDATE", "DELETE"]
    incoming: QuotaNode | None = None  # None when deleting
    stored: QuotaNode | None = None  # None when creating

    @property
    def name(self) -> str:
        node = self.incoming or self.stored
        return node.name if node is not None else ""


class Cause(msgspec.Struct, frozen=True):
    """A field that is wrong, for the details of the answer."""

    field: str
    message: str


class Decision(msgspec.Struct, frozen=True):
    """`reason` is the first violation's, or what was denied by `webhook.deny`; for metrics too."""

    allowed: bool
    message: str = ""
    reason: str = ""
    code: int = 200
    causes: tuple[Cause, ...] = ()
    warnings: tuple[str, ...] = ()


class Standing(msgspec.Struct, frozen=True):
    """The tree as it is, judged once for all writes that are decided on it."""

    tree: Tree
    context: Context
    verdict: Verdict
    counted: Counted


def stand(nodes: Iterable[QuotaNode], context: Context) -> Standing:
    """`nodes` are the live ones, those in deletion too."""
    tree = grow(nodes)
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
    stored = review.stored or before
    if stored is not None and review.operation == "UPDATE":
        if _same_spec(stored, review.incoming):
            return Decision(True)
        if review.incoming.role != stored.role:
            return _role_change(tree, before or stored, review.incoming)
    near = nearby(tree, standing.counted, review.incoming)
    new = check(near.tree, context)
    added = _added(standing.verdict, new, review.name, near.touched)
    if added:
        return _denial(review.name, added)
    found = advise(review.incoming, before, standing.verdict, new, context, tree, hardware)
    return _advised(review.name, found, deny)


# --- what is denied ---------------------------------------------------------------------------


def _same_spec(one: QuotaNode, other: QuotaNode) -> bool:
    return all(getattr(one, field) == getattr(other, field) for field in _SPEC)


def _deletion(tree: Tree, name: str) -> Decision:
    node = tree.nodes.get(name)
    children = [child for child in tree.children(name) if child != name]
    if node is None or node.deleting or not children:
        return Decision(True)
    told = [f"{n} (being deleted)" if tree.nodes[n].deleting else n for n in children]
    message = (
        f"{name}: {len(children)} node(s) name it as their parent: {listed(told)}; delete them or "
        "give them another parent first"
    )
    return Decision(False, message, PARENT_MISSING, FORBIDDEN)


def _role_change(tree: Tree, stored: QuotaNode, incoming: QuotaNode) -> Decision:
    message = (
        f"spec.role cannot change from {stored.role} to {incoming.role}: the two are different "
        "objects in Kueue; delete the node and create it again"
    )
    children = tree.children(stored.name)
    held = [f"{amount} {pair}" for pair, amount in sorted(_admitted(stored).items()) if amount]
    if children:
        message += f" (it has the children {listed(children)})"
    elif held:
        message += f" (its workloads hold {listed(held)})"
    cause = Cause("spec.role", message)
    return Decision(False, f"{stored.name}: {message}", NODE_KIND_INVALID, INVALID, (cause,))


def _admitted(node: QuotaNode) -> dict[Any, Quantity]:
    found = {p: read_amount(row.get("admitted")) for p, row in budget_rows(node.status).items()}
    return {pair: amount for pair, amount in found.items() if amount is not None}


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


def _denial(name: str, added: list[Violation]) -> Decision:
    ranked = sorted(added, key=lambda violation: (violation.rank, violation.order))
    first = ranked[0]
    told, length = 0, 0
    messages = [f"{violation.node}: {violation.message}" for violation in ranked]
    while told < len(messages) and (length := length + len(messages[told])) <= _MOST_MESSAGE:
        told += 1
    text = "; ".join(messages[: max(told, 1)])[:_MOST_MESSAGE]
    rest = len(messages) - max(told, 1)
    own = [violation for violation in ranked if violation.node == name and violation.field]
    is_field = first.node == name and bool(first.field) and first.reason in _FIELD_REASONS
    return Decision(
        False,
        f"{text}; ({rest} more)" if rest else text,
        first.reason,
        INVALID if is_field else FORBIDDEN,
        tuple(Cause(violation.field, violation.message) for violation in own[:_MOST_WARNINGS]),
    )


# --- what is warned about ---------------------------------------------------------------------


def _advised(name: str, found: Iterable[Advice], deny: frozenset[str]) -> Decision:
    told = tuple(found)
    refused = [advice for advice in told if advice.kind in deny and not advice.only_warns]
    if refused:
        message = "; ".join(f"{name}: {advice.message}" for advice in refused)[:_MOST_MESSAGE]
        causes = tuple(Cause(advice.field, advice.message) for advice in refused if advice.field)
        return Decision(False, message, refused[0].kind, FORBIDDEN, causes)
    reason = told[0].kind if told else ""
    return Decision(True, reason=reason, warnings=tuple(_bounded(name, told)))


def _bounded(name: str, told: Sequence[Advice]) -> Iterator[str]:
    for advice in told[:_MOST_WARNINGS]:
        text = f"{name}: {advice.message}"
        yield text if len(text) <= _MOST_WARNING else text[: _MOST_WARNING - 1] + "…"
    if len(told) > _MOST_WARNINGS:
        yield f"{name}: {len(told) - _MOST_WARNINGS} more warnings"
