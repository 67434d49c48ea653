"""What a person should know about a write that the tree's rules allow.

Each rule looks at what the write changes only: an unrelated edit of a node that was over its mark
before says nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from quota_translator.core.capacity import Unattributed, measure
from quota_translator.core.ceilings import Ceilings
from quota_translator.core.names import CLUSTER_QUEUE, ROOT, Pair
from quota_translator.core.options import (
    AMBIGUOUS_FLAVOR,
    BELOW_ADMITTED,
    FLAVOR_MISSING,
    NEVER_SEEN,
    OVER_MARK,
    OVERSUBSCRIBED,
)
from quota_translator.core.quantity import ZERO, Quantity
from quota_translator.core.rootstatus import ambiguity
from quota_translator.core.sums import lack, stated
from quota_translator.core.tree import Tree
from quota_translator.core.usage import budget_rows, read_amount
from quota_translator.core.verdict import CAPACITY_EXCEEDED, Context, Verdict, shown, shown_pair
from quota_translator.core.world import Budget, Node, QuotaNode

# Warnings that nobody can turn into denials.
NO_EFFECT: Final = "NoEffect"
UNLIKELY: Final = "UnlikelyAmount"
GOING: Final = "Going"  # a node in deletion
EVICTS: Final = "Evicts"


class Advice(msgspec.Struct, frozen=True):
    """`kind` is one of `options.WARNINGS`, NO_EFFECT, UNLIKELY, GOING or EVICTS."""

    kind: str
    message: str
    field: str = ""
    only_warns: bool = False  # what it rests on is not known well enough to deny


def advise(
    incoming: QuotaNode,
    before: QuotaNode | None,
    old: Verdict,
    new: Verdict,
    context: Context,
    tree: Tree,
    hardware: Sequence[Node] | None,
) -> Iterator[Advice]:
    """`old` and `new` are the verdicts without and with the write; `tree` is that without."""
    was = stated(before) if before is not None else {}
    now = stated(incoming)
    root = incoming if incoming.name == ROOT else tree.nodes.get(ROOT)
    ceilings = Ceilings(root, context.capacity or {})
    for pair, budget in now.items():
        yield from _hardware(pair, budget, was.get(pair), context, ceilings)
        yield from _amount(pair, budget, was.get(pair))
    yield from _parent(incoming, before, tree)
    yield from _below_admitted(before, incoming, was)
    yield from _drain(incoming, before)
    yield from _undeclared(incoming, old, new)
    yield from _oversubscribed(old, new, ceilings)
    yield from _ambiguous(incoming, context, tree, hardware)
    yield from _without_effect(incoming, before)


def _hardware(
    pair: Pair, budget: Budget, before: Budget | None, context: Context, ceilings: Ceilings
) -> Iterator[Advice]:
    field = f"spec.budgets[{budget.index}]"
    if context.flavors is not None and all(f.name != pair.flavor for f in context.flavors):
        if before is None:
            message = (
                f"ResourceFlavor {shown(pair.flavor)} does not exist; until somebody creates it "
                f"the share of {shown_pair(pair)} is not in Kueue"
            )
            yield Advice(FLAVOR_MISSING, message, f"{field}.resourceFlavor")
        return
    is_raised = before is None or budget.nominal > before.nominal
    if not context.capacity or not is_raised or not budget.nominal:
        return
    ceiling = ceilings.of(pair)
    if context.flavors is None and all(seen.flavor != pair.flavor for seen in context.capacity):
        return  # as in `check`: nobody knows whether there is such a flavor
    share = f"budget {shown_pair(pair)} is {budget.nominal} but"
    if ceiling.row is None and ceiling.declared is None:
        why = lack(budget, ceiling, context)
        message = f"{share} {why}: the node is frozen until it is measured"
        yield Advice(NEVER_SEEN, message, f"{field}.nominal")
    elif not ceiling.is_known:
        message = f"{share} no node has ever offered that pair: the node is frozen until one does"
        yield Advice(NEVER_SEEN, message, f"{field}.nominal")
    elif budget.nominal > ceiling.amount:
        message = (
            f"{share} {ceiling.text}: the node is frozen until it is lowered by "
            f"{budget.nominal - ceiling.amount} or hardware is added"
        )
        yield Advice(OVER_MARK, message, f"{field}.nominal")


def _amount(pair: Pair, budget: Budget, before: Budget | None) -> Iterator[Advice]:
    """`1Ki` of a device is 1024 of them, and hardly ever meant."""
    is_new = before is None or before.nominal != budget.nominal
    text = str(budget.nominal)
    if is_new and text.endswith("i") and "/" in pair.resource:
        devices, digits = budget.nominal.ceil(), text[:-2]
        message = f"{text} of {shown_pair(pair)} are {devices} devices: did you mean {digits}?"
        yield Advice(UNLIKELY, message, f"spec.budgets[{budget.index}].nominal")


def _below_admitted(
    before: QuotaNode | None, incoming: QuotaNode, was: Mapping[Pair, Budget]
) -> Iterator[Advice]:
    """A share, or what may be borrowed on top of it, is lowered below what runs there."""
    rows = budget_rows(before.status) if before is not None else {}
    now = stated(incoming)
    for pair, budget in was.items():
        admitted = read_amount(rows.get(pair, {}).get("admitted")) or ZERO
        left = now.get(pair)
        share = left.nominal if left is not None else ZERO
        is_lowered = share < budget.nominal
        is_cap = incoming.role == CLUSTER_QUEUE or (left is not None and left.enforced)
        if is_cap and _bound(left) < min(admitted, _bound(budget)):
            end = f"nothing new is admitted until {admitted - _bound(left)} of them have ended"
            message = f"below the {admitted} that are admitted: nothing is evicted, and {end}"
        elif is_lowered and share < admitted:
            message = (
                f"below the {admitted} that are admitted: {admitted - share} count as borrowed"
            )
        else:
            continue
        change = f"lowered from {budget.nominal} to {share}" if left is not None else "taken away"
        if not is_lowered and left is not None:
            change = f"{share} and its borrowingLimit lowered to {left.borrowing_limit or ZERO}"
        field = f"spec.budgets[{left.index}].nominal" if left is not None else "spec.budgets"
        yield Advice(BELOW_ADMITTED, f"budget {shown_pair(pair)} is {change}, {message}", field)


def _bound(budget: Budget | None) -> Quantity:
    """What may be used at most."""
    return budget.nominal + (budget.borrowing_limit or ZERO) if budget is not None else ZERO


def _undeclared(incoming: QuotaNode, old: Verdict, new: Verdict) -> Iterator[Advice]:
    """Less is declared on root than nodes beneath it rely on."""
    if incoming.name != ROOT:
        return
    had = {(v.node, v.subject) for v in old.violations if v.reason == CAPACITY_EXCEEDED}
    for one in new.violations:
        is_new = (one.node, one.subject) not in had
        if one.reason == CAPACITY_EXCEEDED and one.node != ROOT and is_new:
            message = f"{shown(one.node)} is frozen by this: {one.message}"
            yield Advice(OVER_MARK, message, "spec.expectedCapacity")


def _oversubscribed(old: Verdict, new: Verdict, ceilings: Ceilings) -> Iterator[Advice]:
    before = {one.pair: one.excess for one in old.oversubscribed}
    for one in new.oversubscribed:
        if one.excess > before.get(one.pair, ZERO):
            is_unknown = not ceilings.of(one.pair).is_known
            yield Advice(OVERSUBSCRIBED, one.message, only_warns=is_unknown)


def _parent(incoming: QuotaNode, before: QuotaNode | None, tree: Tree) -> Iterator[Advice]:
    parent = tree.nodes.get(incoming.parent or "")
    is_new = before is None or before.parent != incoming.parent
    if is_new and parent is not None and parent.deleting:
        message = f"parent {shown(parent.name)} is being deleted, and cannot go before this node"
        yield Advice(GOING, message, "spec.parentRef.name")


def _drain(incoming: QuotaNode, before: QuotaNode | None) -> Iterator[Advice]:
    was = before.stop_policy if before is not None else None
    if before is not None and incoming.stop_policy == "HoldAndDrain" != was:
        message = f"HoldAndDrain evicts everything that runs in {shown(incoming.name)}, at once"
        yield Advice(EVICTS, message, "spec.stopPolicy")


def _ambiguous(
    incoming: QuotaNode, context: Context, tree: Tree, hardware: Sequence[Node] | None
) -> Iterator[Advice]:
    """Naming a second flavor that machines fit as well as the first makes them count for none."""
    flavors = {b.flavor for b in incoming.budgets}
    before = tree.nodes.get(incoming.name)
    is_new = flavors - {b.flavor for b in (before.budgets if before else ())}
    if hardware is None or context.flavors is None or not is_new:
        return
    had = {b.flavor for node in tree.nodes.values() for b in node.budgets}
    has = had | flavors
    if has == had:
        return
    resources = context.options.capacity.resources
    old = _torn(measure(hardware, context.flavors, resources, frozenset(had)).unattributed)
    new = _torn(measure(hardware, context.flavors, resources, frozenset(has)).unattributed)
    added = [row for key, row in new.items() if key not in old or row.nodes > old[key].nodes]
    if message := ambiguity(added):
        yield Advice(AMBIGUOUS_FLAVOR, message, "spec.budgets")


def _torn(rows: Sequence[Unattributed]) -> dict[tuple[str, tuple[str, ...]], Unattributed]:
    return {(r.resource, r.flavors): r for r in rows if r.reason == AMBIGUOUS_FLAVOR}


def _without_effect(incoming: QuotaNode, before: QuotaNode | None) -> Iterator[Advice]:
    for field, is_set, was_set in (
        (
            "spec.priorityTier",
            incoming.priority_tier is not None,
            before is not None and before.priority_tier is not None,
        ),
        ("spec.distribution", incoming.distribution, before is not None and before.distribution),
    ):
        if is_set and not was_set:
            yield Advice(NO_EFFECT, f"{field} is stored, and has no effect in this release", field)
    had = {b.pair for b in (before.budgets if before else ()) if b.policy or b.per_cluster}
    for budget in incoming.budgets:
        if (budget.policy or budget.per_cluster) and budget.pair not in had:
            path = f"spec.budgets[{budget.index}]"
            name = "policy" if budget.policy else "perCluster"
            message = f"{path}.{name} is for fleets, and has no effect on one cluster"
            yield Advice(NO_EFFECT, message, f"{path}.{name}")
