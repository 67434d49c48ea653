"""Who uses what: Kueue's figures for every team, summed up the tree.

A team's figures come from its ClusterQueues' statuses, each a `Charge` that names its queue. A team
without a queue (or whose queue has no status yet) is absent from the result: unknown, which is not
zero. Only pairs that a node budgets itself get a figure, so the cover resources never show.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from quota_translator.core.kueue import is_ours
from quota_translator.core.names import CLUSTER_QUEUE, Key, Pair
from quota_translator.core.quantity import ZERO, Quantity, QuantityError
from quota_translator.core.tree import Tree
from quota_translator.core.world import Budget, Clock, Observed, QuotaNode, World


class Use(msgspec.Struct, frozen=True, gc=False):
    """Figures of one node for one pair, borrowed use included in both of the first."""

    admitted: Quantity
    reserved: Quantity  # held by workloads with a reservation; never below admitted
    borrowed: Quantity


NO_USE = Use(ZERO, ZERO, ZERO)
Usage = Mapping[str, Mapping[Pair, Use]]


class Charge(msgspec.Struct, frozen=True, gc=False):
    """What one queue says is charged to a node; a node may have several queues."""

    node: str
    source: Key
    uses: Mapping[Pair, Use]


def read_usage(tree: Tree, world: World, manager: str) -> Usage:
    """Figures by node and pair. While ClusterQueues cannot be read, the last ones reported stay."""
    if CLUSTER_QUEUE not in world.known:
        kept = {name: _remembered(node) for name, node in tree.nodes.items()}
        return {name: uses for name, uses in kept.items() if uses}
    by_node = _by_node(charges(world.live.values(), manager))
    found: dict[str, Mapping[Pair, Use]] = {}
    beneath = _beneath(tree, by_node)
    for name, node in tree.nodes.items():
        if node.role == CLUSTER_QUEUE:
            if name in by_node:
                found[name] = _team(node, by_node[name])
        elif beneath.get(name) is not None:
            found[name] = _group(node, beneath[name] or {})
    return {name: uses for name, uses in found.items() if uses}


def charges(live: Iterable[Observed], manager: str) -> tuple[Charge, ...]:
    """What our ClusterQueues report. Someone else's queue is none, whatever its name."""
    return tuple(
        Charge(queue.quota, queue.key, _uses(queue))
        for queue in live
        if queue.key.kind == CLUSTER_QUEUE
        and queue.quota
        and queue.usage is not None
        and is_ours(queue, manager)
    )


def authored(node: QuotaNode) -> dict[Pair, Budget]:
    """The node's budgets by pair, in its own order; of two for one pair the first counts."""
    found: dict[Pair, Budget] = {}
    for budget in node.budgets:
        found.setdefault(budget.pair, budget)
    return found


def over(budget: Budget, use: Use) -> Quantity:
    """Admitted beyond nominal + borrowingLimit: what a cut left above the new bound."""
    return max(ZERO, use.admitted - budget.nominal - (budget.borrowing_limit or ZERO))


def advance_over(
    tree: Tree, usage: Usage, before: Mapping[tuple[str, Pair], datetime], clock: Clock
) -> dict[tuple[str, Pair], datetime]:
    """Since when each budget has been over. A budget whose use is unknown keeps what it had."""
    since: dict[tuple[str, Pair], datetime] = {}
    for name, node in tree.nodes.items():
        for pair, budget in authored(node).items():
            use = usage.get(name, {}).get(pair)
            moment = before.get((name, pair))
            if use is not None:
                moment = (moment or clock.wall) if over(budget, use) else None
            if moment is not None:
                since[name, pair] = moment
    return since


# --- one queue, one team, one group -----------------------------------------------------------


def _uses(queue: Observed) -> dict[Pair, Use]:
    reservation = queue.reservation or {}
    found: dict[Pair, Use] = {}
    for pair, amount in (queue.usage or {}).items():
        held = reservation.get(pair)
        reserved = max(held.total, amount.total) if held else amount.total
        found[pair] = Use(amount.total, reserved, amount.borrowed)
    for pair, amount in reservation.items():
        found.setdefault(pair, Use(ZERO, amount.total, ZERO))
    return found


def _by_node(found: Iterable[Charge]) -> dict[str, list[Charge]]:
    by_node: dict[str, list[Charge]] = {}
    for charge in found:
        by_node.setdefault(charge.node, []).append(charge)
    return by_node


def _team(node: QuotaNode, parts: list[Charge]) -> dict[Pair, Use]:
    """One queue: Kueue's own figures. Several: their sum, and borrowed is what exceeds nominal."""
    summed = _sum(part.uses for part in parts)
    if len(parts) == 1:
        return {pair: summed.get(pair, NO_USE) for pair in authored(node)}
    return _group(node, summed)


def _group(node: QuotaNode, summed: Mapping[Pair, Use]) -> dict[Pair, Use]:
    """A loan between two members is not borrowed by their group, so its own nominal decides."""
    found: dict[Pair, Use] = {}
    for pair, budget in authored(node).items():
        use = summed.get(pair, NO_USE)
        borrowed = max(ZERO, use.admitted - budget.nominal)
        found[pair] = Use(use.admitted, use.reserved, borrowed)
    return found


def _beneath(
    tree: Tree, by_node: Mapping[str, list[Charge]]
) -> dict[str, Mapping[Pair, Use] | None]:
    """Sums of the teams beneath every group; None where there are teams and none is known."""
    teams: dict[str, list[str]] = {name: [] for name in tree.nodes if not tree.is_leaf(name)}
    for name in tree.leaves:
        for ancestor in tree.ancestors(name):
            if ancestor in teams:
                teams[ancestor].append(name)
    found: dict[str, Mapping[Pair, Use] | None] = {}
    for group, members in teams.items():
        known = [charge for member in members for charge in by_node.get(member, ())]
        found[group] = _sum(charge.uses for charge in known) if known or not members else None
    return found


def _sum(parts: Iterable[Mapping[Pair, Use]]) -> dict[Pair, Use]:
    summed: dict[Pair, Use] = {}
    for uses in parts:
        for pair, use in uses.items():
            so_far = summed.get(pair, NO_USE)
            summed[pair] = Use(
                so_far.admitted + use.admitted,
                so_far.reserved + use.reserved,
                so_far.borrowed + use.borrowed,
            )
    return summed


# --- the figures that were reported last ------------------------------------------------------


def budget_rows(status: Mapping[str, Any]) -> dict[Pair, Mapping[str, Any]]:
    """The rows of a stored `status.budgets` by pair; of two for one pair the first."""
    rows = status.get("budgets")
    found: dict[Pair, Mapping[str, Any]] = {}
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, Mapping):
            pair = Pair(str(row.get("resourceName")), str(row.get("resourceFlavor")))
            found.setdefault(pair, row)
    return found


def read_amount(value: object) -> Quantity | None:
    """A figure of a stored status; None where there is none."""
    try:
        return Quantity.parse(value) if isinstance(value, str) else None
    except QuantityError:
        return None


def _remembered(node: QuotaNode) -> dict[Pair, Use]:
    pairs = authored(node)
    found: dict[Pair, Use] = {}
    for pair, row in budget_rows(node.status).items():
        admitted = read_amount(row.get("admitted"))
        if pair in pairs and admitted is not None:
            reserved, borrowed = read_amount(row.get("reserved")), read_amount(row.get("borrowed"))
            found[pair] = Use(admitted, max(admitted, reserved or ZERO), borrowed or ZERO)
    return found
