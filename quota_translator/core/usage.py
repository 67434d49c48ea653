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
from quota_translator.core.memo import ByIdentity
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
    teams, leaving = _members(tree), _leaving(tree, world, manager)
    for name, node in tree.nodes.items():
        if node.role == CLUSTER_QUEUE:
            if name in by_node:
                found[name] = _team(node, by_node[name])
            continue
        known = [charge for member in teams[name] for charge in by_node.get(member, ())]
        known += leaving.get(name, ())
        if known or not teams[name]:  # nothing is known of teams that are there: not a zero
            found[name] = _summed(node, known)
    return {name: uses for name, uses in found.items() if uses}


def _leaving(tree: Tree, world: World, manager: str) -> dict[str, list[Charge]]:
    """By group: teams that were deleted and whose work goes on, with what they were last seen to
    use. Kueue counts nothing of a queue in deletion, but the devices are in use all the same."""
    found: dict[str, list[Charge]] = {}
    for node in world.quotas or ():
        if not node.deleting or node.name in tree.nodes or node.role != CLUSTER_QUEUE:
            continue
        queue = world.live.get(Key(CLUSTER_QUEUE, "", node.name))
        if queue is not None and queue.deleting and is_ours(queue, manager) and node.parent:
            charge = Charge(node.name, queue.key, _remembered(node))
            for group in (node.parent, *tree.ancestors(node.parent)):
                found.setdefault(group, []).append(charge)
    return found


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


def authored(node: QuotaNode) -> Mapping[Pair, Budget]:
    """The node's budgets by pair, in its own order; of two for one pair the first counts."""
    return _by_pair(node.budgets)


def _first_of_each(budgets: tuple[Budget, ...]) -> dict[Pair, Budget]:
    found: dict[Pair, Budget] = {}
    for budget in budgets:
        found.setdefault(budget.pair, budget)
    return found


_by_pair = ByIdentity(_first_of_each)


def over(budget: Budget, use: Use) -> Quantity:
    """Admitted beyond nominal + borrowingLimit: what a cut left above the new bound."""
    limit = budget.borrowing_limit or ZERO
    if use.admitted.nanos <= budget.nominal.nanos + limit.nanos:  # nearly always
        return ZERO
    return use.admitted - budget.nominal - limit


def advance_over(
    tree: Tree, usage: Usage, before: Mapping[tuple[str, Pair], datetime], clock: Clock
) -> dict[tuple[str, Pair], datetime]:
    """Since when each budget has been over. A budget whose use is unknown keeps what it had."""
    since: dict[tuple[str, Pair], datetime] = {}
    for name, node in tree.nodes.items():
        uses = usage.get(name, {})
        for pair, budget in authored(node).items():
            use = uses.get(pair)
            moment = before.get((name, pair))
            if use is not None:
                moment = (moment or clock.wall) if over(budget, use) else None
            if moment is not None:
                since[name, pair] = moment
    return since


# --- one queue, one team, one group -----------------------------------------------------------


def _uses(queue: Observed) -> Mapping[Pair, Use]:
    return _uses_of(queue)


def _told(queue: Observed) -> dict[Pair, Use]:
    reservation = queue.reservation or {}
    found: dict[Pair, Use] = {}
    for pair, amount in (queue.usage or {}).items():
        held = reservation.get(pair)
        reserved = max(held.total, amount.total) if held else amount.total
        found[pair] = Use(amount.total, reserved, amount.borrowed)
    for pair, amount in reservation.items():
        found.setdefault(pair, Use(ZERO, amount.total, ZERO))
    return found


_uses_of = ByIdentity(_told)


def _by_node(found: Iterable[Charge]) -> dict[str, list[Charge]]:
    by_node: dict[str, list[Charge]] = {}
    for charge in found:
        by_node.setdefault(charge.node, []).append(charge)
    return by_node


def _team(node: QuotaNode, parts: list[Charge]) -> dict[Pair, Use]:
    """One queue: Kueue's own figures. Several: their sum, and borrowed is what exceeds nominal."""
    if len(parts) == 1:
        return {pair: parts[0].uses.get(pair, NO_USE) for pair in authored(node)}
    return _summed(node, parts)


def _summed(node: QuotaNode, parts: Iterable[Charge]) -> dict[Pair, Use]:
    """The sums of the pairs that the node budgets.

    A loan between two members is not borrowed by their group, so its own nominal decides.
    """
    budgets = authored(node)
    admitted, reserved = dict.fromkeys(budgets, ZERO), dict.fromkeys(budgets, ZERO)
    for part in parts:
        for pair, use in part.uses.items():
            if pair in budgets and use.reserved:  # which is never below admitted
                admitted[pair] += use.admitted
                reserved[pair] += use.reserved
    return {
        pair: Use(admitted[pair], reserved[pair], max(ZERO, admitted[pair] - budget.nominal))
        for pair, budget in budgets.items()
    }


def _members(tree: Tree) -> dict[str, list[str]]:
    """The teams beneath every group, in the order of names."""
    teams: dict[str, list[str]] = {name: [] for name in tree.nodes if not tree.is_leaf(name)}
    for name in tree.leaves:
        for ancestor in tree.ancestors(name):
            if ancestor in teams:
                teams[ancestor].append(name)
    return teams


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
