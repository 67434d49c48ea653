"""What the tree promises, added up exactly: containment, capacity, and oversubscription.

A group that states no amount for a pair is seen through: it counts as the sum beneath it. An amount
that is negative or could not be read counts as not stated, so that one bad number neither hides an
overrun nor invents one.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from quota_translator.core.ceilings import Ceiling, Ceilings
from quota_translator.core.memo import ByIdentity
from quota_translator.core.names import ROOT, Pair
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.tree import Tree
from quota_translator.core.verdict import (
    CAPACITY_EXCEEDED,
    CONTAINMENT_VIOLATED,
    Context,
    Oversubscription,
    Violation,
    shown_pair,
)
from quota_translator.core.world import Budget, QuotaNode


class Overrun(msgspec.Struct, frozen=True):
    """A group's budget that is smaller than what its children are promised."""

    node: str
    budget: Budget
    children: Quantity


class Sums(msgspec.Struct, frozen=True):
    overruns: tuple[Overrun, ...]
    promised: Mapping[
        Pair, Quantity
    ]  # by the tree as a whole: root's budgets, else what is beneath


def stated(node: QuotaNode) -> Mapping[Pair, Budget]:
    """The readable budgets of a node by pair; of several for one pair the first."""
    if node.faults:
        return _stated(node.budgets, {fault.path for fault in node.faults})
    return _stated_before(node.budgets)


def _stated(budgets: tuple[Budget, ...], unread: set[str]) -> dict[Pair, Budget]:
    found: dict[Pair, Budget] = {}
    for budget in budgets:
        path = f"spec.budgets[{budget.index}]" if unread else ""
        readable = not unread or (path not in unread and f"{path}.nominal" not in unread)
        if readable and budget.nominal >= ZERO:
            found.setdefault(budget.pair, budget)
    return found


def _stated_readable(budgets: tuple[Budget, ...]) -> dict[Pair, Budget]:
    return _stated(budgets, set())


_stated_before = ByIdentity(_stated_readable)


def add_up(tree: Tree, counted: dict[str, Mapping[Pair, Quantity]] | None = None) -> Sums:
    """The sums of every node that hangs from a top. Nodes in loops have no sums.

    Into `counted`, if given, goes what each node counts for with its parent.
    """
    overruns: list[Overrun] = []
    promised: dict[str, dict[Pair, Quantity]] = {}
    for name in reversed(tree.forest):  # children before parents
        own = stated(tree.nodes[name])
        children = [promised.pop(child) for child in tree.children(name)]
        beneath = {} if tree.is_leaf(name) else _merged(children)
        for pair, budget in own.items():
            if beneath.get(pair, ZERO) > budget.nominal:
                overruns.append(Overrun(name, budget, beneath[pair]))
        for pair, budget in own.items():
            beneath[pair] = budget.nominal
        promised[name] = beneath
        if counted is not None:
            counted[name] = dict(beneath)  # this one is grown into the parent's
    return Sums(tuple(overruns), promised.get(ROOT, {}))


def _merged(children: list[dict[Pair, Quantity]]) -> dict[Pair, Quantity]:
    """The sum by pair. It grows the largest, so that deep trees do not copy what is beneath."""
    if not children:
        return {}
    largest = max(range(len(children)), key=lambda at: len(children[at]))
    result = children[largest]
    for at, child in enumerate(children):
        if at != largest:
            for pair, amount in child.items():
                result[pair] = result[pair] + amount if pair in result else amount
    return result


def containment(tree: Tree, sums: Sums) -> Iterator[Violation]:
    """A group's budget covers its children's. The group is blamed: which child grew is unknown."""
    for overrun in sums.overruns:
        node, budget = tree.nodes[overrun.node], overrun.budget
        excess = overrun.children - budget.nominal
        message = (
            f"budget {shown_pair(budget.pair)} is {budget.nominal} but its children total "
            f"{overrun.children}: raise it or lower them by {excess}"
        )
        field = f"spec.budgets[{budget.index}].nominal"
        subject = str(budget.pair)
        yield Violation(
            node.name, CONTAINMENT_VIOLATED, subject, message, field, node.source, excess
        )


def capacity(tree: Tree, context: Context) -> Iterator[Violation]:
    """No budget is above the high-water mark of its pair. Groups are held to it as teams are.

    With no capacity at all nothing is judged. A missing flavor is no lack of capacity: it is told
    where it has its effect, on Materialized. A budget of 0 promises nothing.
    """
    rows = context.capacity
    if not rows:
        return
    known, ceilings = _known_flavors(context, rows), Ceilings(tree.nodes.get(ROOT), rows)
    for node in tree.nodes.values():
        if not any(b.nominal > ceilings.of(b.pair).amount for b in node.budgets):
            continue
        for pair, budget in stated(node).items():
            ceiling = ceilings.of(pair)
            if budget.nominal <= ceiling.amount or pair.flavor not in known:
                continue
            message = f"budget {shown_pair(pair)} is {budget.nominal} but " + lack(
                budget, ceiling, context
            )
            field = f"spec.budgets[{budget.index}].nominal"
            yield Violation(node.name, CAPACITY_EXCEEDED, str(pair), message, field, node.source)


def oversubscribed(tree: Tree, sums: Sums, context: Context) -> tuple[Oversubscription, ...]:
    """The pairs of which the tree promises more than there is, or is declared. This freezes
    nothing."""
    rows = context.capacity or {}
    known, ceilings = _known_flavors(context, rows), Ceilings(tree.nodes.get(ROOT), rows)
    return tuple(
        Oversubscription(pair, amount, ceiling.amount, ceiling.is_declared)
        for pair, amount in sorted(sums.promised.items())
        if pair in ceilings
        and pair.flavor in known
        and amount > (ceiling := ceilings.of(pair)).amount
    )


def promisers(tree: Tree, pair: Pair) -> tuple[tuple[str, Quantity], ...]:
    """The nodes whose amounts make the sum, the largest first; none where root states it. Of a
    tree that was cut down (`nearby`) it tells nothing that people know."""
    found: list[tuple[str, Quantity]] = []
    todo = [ROOT]
    while todo:
        name = todo.pop()
        budget = stated(tree.nodes[name]).get(pair)
        if budget is None:
            todo.extend(() if tree.is_leaf(name) else tree.children(name))
        elif name != ROOT and budget.nominal:
            found.append((name, budget.nominal))
    return tuple(sorted(found, key=lambda one: (-one[1].nanos, one[0])))


def _known_flavors(context: Context, rows: Iterable[Pair]) -> frozenset[str]:
    """The flavors that exist. While they cannot be read, those that were measured are believed."""
    if context.flavors is None:
        return frozenset(pair.flavor for pair in rows)
    return frozenset(flavor.name for flavor in context.flavors)


def lack(budget: Budget, ceiling: Ceiling, context: Context) -> str:
    if ceiling.declared is None and ceiling.row is None:
        why = "no capacity is measured for that pair"
        if budget.resource not in context.options.capacity.resources:
            return f"{why}: the resource is not in capacity.resources"
        return why
    if not ceiling.is_known:
        return "that pair was never seen on any node"
    return f"{ceiling.text}: lower it by {budget.nominal - ceiling.amount}"
